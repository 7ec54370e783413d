"""A client of quern, the LLM inference service: offline batches with vLLM's names (LLM), and clients of a running
service's job socket (Client, AsyncClient)."""

from .aio import AsyncClient, AsyncJob
from .async_llm import AsyncEngineArgs, AsyncLLM
from .client import Client, Job
from .errors import AuthError, BadRequest, ConnectionLost, DeadlineExceeded, InternalError, NoSuchJob, NotReady, \
    Overloaded, ProtocolError, QuernError, RequestTimeout, ServiceError, StartError, TooLong, Unsupported, WorkerLost
from .keys import Keys, default_address
from .llm import LLM, TextPrompt, Tokenizer, TokensPrompt
from .outputs import BeamSearchOutput, BeamSearchSequence, CompletionOutput, Delta, EmbeddingOutput, \
    EmbeddingRequestOutput, Logprob, Output, PoolingRequestOutput, RequestMetrics, RequestOutput, Result, ScoringOutput, \
    ScoringRequestOutput
from .metrics import Counter, Gauge, Histogram, Metric
from .params import BeamSearchParams, GuidedDecodingParams, PoolingParams, RequestOutputKind, SamplingParams, \
    StructuredOutputsParams

__version__ = "0.2.0"

__all__ = [
    "AsyncClient", "AsyncEngineArgs", "AsyncJob", "AsyncLLM", "AuthError", "BadRequest", "BeamSearchOutput", "BeamSearchParams",
    "BeamSearchSequence", "Client", "CompletionOutput", "ConnectionLost", "Counter", "DeadlineExceeded", "Delta",
    "EmbeddingOutput", "EmbeddingRequestOutput", "Gauge", "GuidedDecodingParams", "Histogram", "InternalError", "Job", "Keys", "LLM",
    "Logprob", "Metric", "NoSuchJob", "NotReady", "Output", "Overloaded", "PoolingParams", "PoolingRequestOutput", "ProtocolError",
    "QuernError", "RequestMetrics", "RequestOutput", "RequestOutputKind", "RequestTimeout", "Result", "SamplingParams", "ScoringOutput", "ScoringRequestOutput",
    "ServiceError", "StartError", "StructuredOutputsParams", "TextPrompt", "Tokenizer", "TokensPrompt",
    "TooLong", "Unsupported", "WorkerLost", "default_address",
]
