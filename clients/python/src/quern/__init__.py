"""A client of quern, the LLM inference service: offline batches with vLLM's names (LLM), and clients of a running
service's job socket (Client, AsyncClient)."""

from .aio import AsyncClient, AsyncJob
from .client import Client, Job
from .errors import AuthError, BadRequest, ConnectionLost, DeadlineExceeded, InternalError, NoSuchJob, NotReady, \
    Overloaded, ProtocolError, QuernError, RequestTimeout, ServiceError, StartError, TooLong, Unsupported, WorkerLost
from .keys import Keys, default_address
from .llm import LLM, TextPrompt, Tokenizer, TokensPrompt
from .outputs import BeamSearchOutput, BeamSearchSequence, CompletionOutput, Delta, EmbeddingOutput, \
    EmbeddingRequestOutput, Logprob, Output, PoolingRequestOutput, RequestMetrics, RequestOutput, Result, ScoringOutput, \
    ScoringRequestOutput
from .params import BeamSearchParams, GuidedDecodingParams, PoolingParams, RequestOutputKind, SamplingParams, \
    StructuredOutputsParams

__version__ = "0.1.0"

__all__ = [
    "AsyncClient", "AsyncJob", "AuthError", "BadRequest", "BeamSearchOutput", "BeamSearchParams",
    "BeamSearchSequence", "Client", "CompletionOutput", "ConnectionLost", "DeadlineExceeded", "Delta",
    "EmbeddingOutput", "EmbeddingRequestOutput", "GuidedDecodingParams", "InternalError", "Job", "Keys", "LLM",
    "Logprob", "NoSuchJob", "NotReady", "Output", "Overloaded", "PoolingParams", "PoolingRequestOutput", "ProtocolError",
    "QuernError", "RequestMetrics", "RequestOutput", "RequestOutputKind", "RequestTimeout", "Result", "SamplingParams", "ScoringOutput", "ScoringRequestOutput",
    "ServiceError", "StartError", "StructuredOutputsParams", "TextPrompt", "Tokenizer", "TokensPrompt",
    "TooLong", "Unsupported", "WorkerLost", "default_address",
]
