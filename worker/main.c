/* main.c - quern-worker: one device, put to work by the controller at the other end of the bus. */
#include "base/err.h"
#include "base/log.h"
#include "base/version.h"
#include "worker/link.h"

#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

enum { GRACE_S = 10, GRACE_MAX_S = 86400, THREADS_MAX = 4096 };

static const char usage[] =
	"usage: quern-worker --bus ENDPOINT [options]\n"
	"\n"
	"One device of a quern service: connects to the controller's worker bus, loads the\n"
	"model that it is told and carries out plans until it is told to stop.\n"
	"\n"
	"  --bus ENDPOINT     the controller's worker bus: ipc://PATH or tcp://HOST:PORT\n"
	"  --device D         cpu, cpu:0 (NUMA node), cuda:0 (default: cpu)\n"
	"  --threads N        threads on the CPU (default: the controller's choice, or one per core)\n"
	"  --isa NAME         avx512, avx2 or plain (default: the best that the CPU has)\n"
	"  --grace SECONDS    end when the controller is gone for so long (default: 10)\n"
	"  --log-level LEVEL  debug, info, warn, error (default: info)\n"
	"  --help, --version\n";

static int parse_int(const char *text, long lo, long hi, const char *name, long *out)
{
	char *end;
	errno = 0;
	long v = strtol(text, &end, 10);
	if (errno || end == text || *end || v < lo || v > hi) {
		fprintf(stderr, "quern-worker: --%s is \"%s\", must be a number from %ld to %ld\n", name,
			text, lo, hi);
		return -EINVAL;
	}
	*out = v;
	return 0;
}

/* 0: go on; 1: done (help, version); -EINVAL: wrong usage, already told. */
static int parse(int argc, char **argv, struct link_args *a, enum log_level *level)
{
	static const struct option options[] = {
		{"bus", required_argument, NULL, 'b'},
		{"device", required_argument, NULL, 'd'},
		{"threads", required_argument, NULL, 't'},
		{"isa", required_argument, NULL, 'i'},
		{"grace", required_argument, NULL, 'g'},
		{"log-level", required_argument, NULL, 'l'},
		{"help", no_argument, NULL, 'h'},
		{"version", no_argument, NULL, 'v'},
		{NULL, 0, NULL, 0},
	};
	long n;
	int c;
	while ((c = getopt_long(argc, argv, "hv", options, NULL)) >= 0) {
		switch (c) {
		case 'b':
			a->bus = optarg;
			break;
		case 'd':
			a->device = optarg;
			break;
		case 'i':
			a->isa = optarg;
			break;
		case 't':
			if (parse_int(optarg, 0, THREADS_MAX, "threads", &n))
				return -EINVAL;
			a->n_threads = (uint32_t)n;
			break;
		case 'g':
			if (parse_int(optarg, 1, GRACE_MAX_S, "grace", &n))
				return -EINVAL;
			a->grace_ms = n * 1000;
			break;
		case 'l':
			if (log_level_parse(optarg) < 0) {
				fprintf(stderr,
					"quern-worker: --log-level is \"%s\", must be debug, info, warn or "
					"error\n",
					optarg);
				return -EINVAL;
			}
			*level = (enum log_level)log_level_parse(optarg);
			break;
		case 'h':
			fputs(usage, stdout);
			return 1;
		case 'v':
			puts("quern-worker " QUERN_VERSION);
			return 1;
		default:
			return -EINVAL; /* getopt told */
		}
	}
	if (optind < argc) {
		fprintf(stderr, "quern-worker: \"%s\" is not expected\n", argv[optind]);
		return -EINVAL;
	}
	if (!a->bus) {
		fprintf(stderr, "quern-worker: --bus is missing\n");
		return -EINVAL;
	}
	return 0;
}

static void on_signal(int sig)
{
	(void)sig;
	link_stop();
}

int main(int argc, char **argv)
{
	struct link_args a = {.device = "cpu", .grace_ms = GRACE_S * 1000};
	enum log_level level = LOG_INFO;
	char why[512] = "";
	int rc = parse(argc, argv, &a, &level);
	if (rc)
		return rc > 0 ? 0 : 2;
	log_init("worker", level);
	struct sigaction sa = {.sa_handler = on_signal};
	sigaction(SIGTERM, &sa, NULL);
	sigaction(SIGINT, &sa, NULL);
	rc = link_run(&a, why, sizeof why);
	if (rc)
		log_error("main", "%s", why);
	return rc ? 1 : 0;
}
