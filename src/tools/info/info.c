/* Halyard: ucx_info: what the library is, how it is set, what it uses here, and why.
 *
 * Letters mean what they mean in UCX's tool of that name. Letters of it that have no meaning here
 * are refused with the reason.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "info.h"
#include "tools/stdout.h"

#include <ctype.h>
#include <dlfcn.h>
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <ucs/config/parser.h>
#include <ucs/config/types.h>
#include <unistd.h>

#define EXIT_FAILED 1
#define EXIT_USAGE  2

#define OPTION_DOCTOR 256
#define OPTION_JSON   257
#define PATIENCE_S    20 /* for what this process does with itself */

typedef struct {
    int version, build, system, topology, devices, context, worker, endpoint, doctor;
    int message; /* the endpoint is used, not shown */
    int json;
    unsigned              print; /* UCS_CONFIG_PRINT_..., 0: no settings */
    const char           *filter;     /* only settings whose names have it; NULL: all */
    const char           *transports; /* that are shown */
    const char           *mem;        /* NULL: not asked for */
    const char           *placement;
    const char           *tls;        /* NULL: as set */
    ucp_mem_map_params_t  mem_params;
    uint64_t              features;
    ucp_err_handling_mode_t err_mode;
    size_t                num_eps, num_ppn;
} info_options_t;

static const char info_help[] =
    "usage: ucx_info OPTIONS\n"
    "What to show:\n"
    "  -v, --version    version\n"
    "  -b               how the library was built\n"
    "  -s               system: processors, memory, pages, identity of the node\n"
    "  -T               NUMA nodes and their distances\n"
    "  -d               transports: devices, limits, costs, why some do not open\n"
    "  -c               settings (UCX_...), with the environment's values\n"
    "  -p               context: transports\n"
    "  -w               worker: its transports, why some are not in use, its memory\n"
    "  -e               endpoint: which protocol serves which sizes, by which transport,\n"
    "                   provider and device, and why not by others\n"
    "  -m SIZE[,TYPE]   memory of that size and kind (host), as the library allocates it\n"
    "  --doctor         check of this machine, with cures, and a message through the library\n"
    "  --json           all of that as one JSON document (man ucx_info: its names)\n"
    "Settings, each with -c understood:\n"
    "  -C               those that were not changed as comments\n"
    "  -f               with what they mean and what is expected\n"
    "  -a               those for experts too\n"
    "  -F TEXT          only those whose names contain it\n"
    "For what:\n"
    "  -t NAMES         transports that -d shows: a,b or ^a,b (all)\n"
    "  -u LETTERS       features: t(ag) r(ma) a(tomics) s(tream) m (active messages) w(akeup)\n"
    "                   x (exported memory) d(evice); e: endpoints with error handling (t)\n"
    "  -n COUNT         endpoints that the program expects to make (1)\n"
    "  -N COUNT         processes of it on a node (1)\n"
    "  -D KIND          transports of the context: all, shm, net, self (all)\n"
    "  -P PLACE         peer of the endpoint: self, intra (another worker of this node), inter\n"
    "                   (the same over the network) (self)\n"
    "  -h, --help       this text\n"
    "\nExit: 0 shown, 1 failed, 2 usage.\n";

static const char info_letters[] = "vbsTdcpwem:CfaF:t:u:n:N:D:P:hyA:6M";

/* Letters of UCX's tool that are refused, and why. */
static const struct {
    char        letter;
    const char *reason;
} info_refused[] = {
    {'y', "the sizes of the library's own structures mean nothing to programs"},
    {'A', "endpoints are made here by a worker's address, not by a socket's"},
    {'6', "endpoints are made here by a worker's address, not by a socket's"},
    {'M', "copies are measured by ucx_perftest -t limits"}
};

/* Returns 0 where the text is no list of features, as do the other parsers. */
static int info_features_parse(const char *letters, info_options_t *options)
{
    static const struct {
        char     letter;
        uint64_t features;
    } table[] = {{'t', UCP_FEATURE_TAG},
                 {'r', UCP_FEATURE_RMA},
                 {'a', UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64},
                 {'s', UCP_FEATURE_STREAM},
                 {'m', UCP_FEATURE_AM},
                 {'x', UCP_FEATURE_EXPORTED_MEMH},
                 {'d', UCP_FEATURE_DEVICE},
                 {'w', UCP_FEATURE_WAKEUP},
                 {'e', 0},
                 {'+', 0}};
    uint64_t features = 0;
    size_t i;

    for (; *letters != '\0'; ++letters) {
        for (i = 0; (i < sizeof(table) / sizeof(table[0])) && (table[i].letter != *letters); ++i) {
        }
        if (i == sizeof(table) / sizeof(table[0])) {
            return 0;
        }
        features |= table[i].features;
        if (*letters == 'e') {
            options->err_mode = UCP_ERR_HANDLING_MODE_PEER;
        }
    }
    options->features = features;
    return features != 0;
}

static int info_count_parse(const char *text, size_t *count_p)
{
    char *end;

    *count_p = strtoull(text, &end, 10);
    return isdigit((unsigned char)text[0]) && (*end == '\0') && (*count_p > 0) &&
           (*count_p < SIZE_MAX); /* more than that reads as it */
}

static int info_kind_parse(const char *text, const char **tls_p)
{
    *tls_p = (strcmp(text, "all") == 0) ? NULL : text;
    return (*tls_p == NULL) || (strcmp(text, "shm") == 0) || (strcmp(text, "net") == 0) ||
           (strcmp(text, "self") == 0);
}

static int info_mem_parse(const char *text, info_options_t *options)
{
    ucp_mem_map_params_t *params = &options->mem_params;

    options->mem       = text;
    params->field_mask = UCP_MEM_MAP_PARAM_FIELD_LENGTH | UCP_MEM_MAP_PARAM_FIELD_FLAGS |
                         UCP_MEM_MAP_PARAM_FIELD_MEMORY_TYPE;
    params->flags      = UCP_MEM_MAP_ALLOCATE;
    return (ucs_config_parse_memory(text, &params->length, &params->memory_type) == UCS_OK) &&
           (params->length > 0);
}

static int info_placement_parse(const char *text, const char **placement_p)
{
    *placement_p = text;
    return (strcmp(text, "self") == 0) || (strcmp(text, "intra") == 0) ||
           (strcmp(text, "inter") == 0);
}

/* An option with an argument. */
static int info_parse_argument(int letter, const char *text, info_options_t *options)
{
    const char *expected;
    int is_good;

    switch (letter) {
    case 'm':
        expected = "a size and perhaps a kind of memory, such as 1m or 64k,cuda,";
        is_good  = info_mem_parse(text, options);
        break;
    case 'u':
        expected = "letters of t r a s m x d w, with e and + among them,";
        is_good  = info_features_parse(text, options);
        break;
    case 'n':
    case 'N':
        expected = "a number above 0";
        is_good  = info_count_parse(text, (letter == 'n') ? &options->num_eps : &options->num_ppn);
        break;
    case 'D':
        expected = "all, shm, net or self";
        is_good  = info_kind_parse(text, &options->tls);
        break;
    default:
        expected = "self, intra or inter";
        is_good  = info_placement_parse(text, &options->placement);
        break;
    }
    if (!is_good) {
        fprintf(stderr, "ucx_info: -%c %s: %s is expected\n", letter, text, expected);
    }
    return is_good;
}

/* A mistake is seen best where the list of all options does not follow it. */
static void info_point_to_help(void)
{
    fputs("Try `ucx_info -h`, or `man ucx_info`.\n", stderr);
}

static int info_refuse(int letter)
{
    size_t i;

    for (i = 0; i < sizeof(info_refused) / sizeof(info_refused[0]); ++i) {
        if (info_refused[i].letter == letter) {
            fprintf(stderr, "ucx_info: option -%c is not available: %s\n", letter,
                    info_refused[i].reason);
            return 0;
        }
    }
    info_point_to_help(); /* getopt has said what is wrong */
    return 0;
}

/* Returns 0 where something of the output got lost, having said so. */
static int info_written(void)
{
    const char *problem = tool_write_problem(stdout);

    if (problem != NULL) {
        fprintf(stderr, "ucx_info: cannot write results to standard output: %s\n", problem);
    }
    return problem == NULL;
}

/* Returns 0 where the arguments make no sense, having said so. */
static int info_parse(int argc, char **argv, info_options_t *options)
{
    static const struct option words[] = {{"help", no_argument, NULL, 'h'},
                                          {"version", no_argument, NULL, 'v'},
                                          {"doctor", no_argument, NULL, OPTION_DOCTOR},
                                          {"json", no_argument, NULL, OPTION_JSON},
                                          {NULL, 0, NULL, 0}};
    const unsigned settings            = UCS_CONFIG_PRINT_CONFIG | UCS_CONFIG_PRINT_HEADER;
    int letter;

    while ((letter = getopt_long(argc, argv, info_letters, words, NULL)) != -1) {
        switch (letter) {
        case 'v': options->version = 1; break;
        case 'b': options->build = 1; break;
        case 's': options->system = 1; break;
        case 'T': options->topology = 1; break;
        case 'd': options->devices = 1; break;
        case 'p': options->context = 1; break;
        case 'w': options->worker = 1; break;
        case 'e': options->endpoint = 1; break;
        case 'c': options->print |= settings; break;
        case 'C': options->print |= settings | UCS_CONFIG_PRINT_COMMENT_DEFAULT; break;
        case 'f': options->print |= settings | UCS_CONFIG_PRINT_DOC; break;
        case 'a': options->print |= settings | UCS_CONFIG_PRINT_HIDDEN; break;
        case 'F':
            options->print |= settings;
            options->filter = optarg;
            break;
        case OPTION_DOCTOR: options->doctor = 1; break;
        case OPTION_JSON: options->json = 1; break;
        case 't': options->transports = optarg; break;
        case 'm': case 'u': case 'n': case 'N': case 'D': case 'P':
            if (!info_parse_argument(letter, optarg, options)) {
                return 0;
            }
            break;
        case 'h':
            fputs(info_help, stdout);
            _exit(info_written() ? 0 : EXIT_FAILED);
        default:
            return info_refuse(letter);
        }
    }
    if (optind < argc) {
        fprintf(stderr, "ucx_info: unexpected word '%s'\n", argv[optind]);
        info_point_to_help();
        return 0;
    }
    if (!(options->version || options->build || options->system || options->topology ||
          options->devices || options->print || options->context || options->worker ||
          options->endpoint || options->doctor || (options->mem != NULL))) {
        fputs(info_help, stderr);
        return 0;
    }
    return 1;
}

static int info_check(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        fprintf(stderr, "ucx_info: %s: %s\n", what, ucs_status_string(status));
    }
    return status == UCS_OK;
}

/* Waits for a request of one of two workers, and releases it. */
static ucs_status_t info_wait(ucp_worker_h worker, ucp_worker_h peer, ucs_status_ptr_t request)
{
    time_t start = time(NULL);
    ucs_status_t status;

    if (!UCS_PTR_IS_PTR(request)) {
        return UCS_PTR_STATUS(request);
    }
    do {
        ucp_worker_progress(worker);
        ucp_worker_progress(peer);
        status = ucp_request_check_status(request);
    } while ((status == UCS_INPROGRESS) && (time(NULL) - start < PATIENCE_S));
    ucp_request_free(request);
    return (status == UCS_INPROGRESS) ? UCS_ERR_TIMED_OUT : status;
}

/* Does a message arrive as it was sent? */
static int info_message(ucp_worker_h worker, ucp_worker_h peer, ucp_ep_h ep)
{
    static const ucp_request_param_t plain = {0};
    static const char sent[]               = "halyard";
    static char received[sizeof(sent)];
    ucs_status_ptr_t receive;
    ucs_status_t status;

    receive = ucp_tag_recv_nbx(peer, received, sizeof(received), 1, ~UINT64_C(0), &plain);
    status  = info_wait(worker, peer, ucp_tag_send_nbx(ep, sent, sizeof(sent), 1, &plain));
    status  = (status == UCS_OK) ? info_wait(worker, peer, receive) : status;
    if ((status == UCS_OK) && (strcmp(sent, received) != 0)) {
        status = UCS_ERR_IO_ERROR;
    }
    return info_check(status, "message");
}

static int info_endpoint(ucp_worker_h worker, ucp_worker_h peer, const info_options_t *options)
{
    ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                 .flags        = UCP_EP_CLOSE_FLAG_FORCE};
    ucp_ep_params_t params    = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                              .err_mode   = options->err_mode};
    ucp_address_t *address;
    size_t length;
    ucp_ep_h ep;
    int done;

    if (!info_check(ucp_worker_get_address(peer, &address, &length), "address")) {
        return 0;
    }
    params.address = address;
    done           = info_check(ucp_ep_create(worker, &params, &ep), "endpoint");
    ucp_worker_release_address(peer, address);
    if (!done) {
        return 0;
    }
    if (options->message) {
        done = info_message(worker, peer, ep);
    } else {
        ucs_report_open(ucs_report_shared, "endpoint", '{');
        ucp_ep_print_info(ep, stdout);
        ucs_report_close(ucs_report_shared);
    }
    (void)info_wait(worker, peer, ucp_ep_close_nbx(ep, &force));
    return done;
}

static int info_workers(ucp_context_h context, const info_options_t *options)
{
    ucp_worker_params_t params = {0};
    ucp_worker_h worker, peer;
    int done = 1;

    if (!info_check(ucp_worker_create(context, &params, &worker), "worker")) {
        return 0;
    }
    peer = worker;
    if ((strcmp(options->placement, "self") != 0) &&
        !info_check(ucp_worker_create(context, &params, &peer), "worker")) {
        done = 0;
        peer = worker;
    }
    if (done && options->endpoint) {
        done = info_endpoint(worker, peer, options);
    }
    if (options->worker) { /* behind the endpoint, for which it may open a network */
        ucs_report_open(ucs_report_shared, "worker", '{');
        ucp_worker_print_info(worker, stdout);
        ucs_report_close(ucs_report_shared);
    }
    if (peer != worker) {
        ucp_worker_destroy(peer);
    }
    ucp_worker_destroy(worker);
    return done;
}

static int info_settings(const ucp_config_t *config, const info_options_t *options)
{
    ucs_report_t *report = ucs_report_shared;

    report->filter = options->filter;
    ucs_report_open(report, "settings", '[');
    if (options->filter == NULL) {
        ucp_config_print(config, stdout, "UCX settings", options->print);
    } else {
        ucp_config_print(config, stdout, NULL, options->print & ~UCS_CONFIG_PRINT_HEADER);
    }
    ucs_report_close(report);
    if ((options->filter == NULL) || (report->shown > 0)) {
        return 1;
    }
    fprintf(stderr, "ucx_info: -F %s: no setting has this in its name%s\n", options->filter,
            (options->print & UCS_CONFIG_PRINT_HIDDEN) ? "" : "; those for experts are with -a");
    return 0;
}

static int info_memory(ucp_context_h context, const info_options_t *options)
{
    ucp_mem_h mem;

    if (!info_check(ucp_mem_map(context, &options->mem_params, &mem), "memory")) {
        return 0;
    }
    ucp_mem_unmap(context, mem);
    ucs_report_open(ucs_report_shared, "memory", '{');
    ucp_mem_print_info(options->mem, context, stdout);
    ucs_report_close(ucs_report_shared);
    return 1;
}

/* What needs a context. */
static int info_context(ucp_config_t *config, const info_options_t *options)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES |
                                         UCP_PARAM_FIELD_ESTIMATED_NUM_EPS |
                                         UCP_PARAM_FIELD_ESTIMATED_NUM_PPN,
                           .features          = options->features,
                           .estimated_num_eps = options->num_eps,
                           .estimated_num_ppn = options->num_ppn};
    const char *tls     = (strcmp(options->placement, "inter") == 0) ? "net" : options->tls;
    ucp_context_h context;
    int done = 1;

    if ((tls != NULL) && !info_check(ucp_config_modify(config, "TLS", tls), "transports")) {
        return 0;
    }
    if (ucs_report_shared->is_json) { /* the tables that UCX_PROTO_INFO prints are none of it */
        (void)ucp_config_modify(config, "PROTO_INFO", "n");
    }
    if (!info_check(ucp_init(&params, config, &context), "context")) {
        return 0;
    }
    if (options->context) {
        ucs_report_open(ucs_report_shared, "context", '{');
        ucp_context_print_info(context, stdout);
        ucs_report_close(ucs_report_shared);
    }
    if (options->mem != NULL) {
        done = info_memory(context, options);
    }
    if (options->worker || options->endpoint) {
        done = info_workers(context, options) && done;
    }
    ucp_cleanup(context);
    return done;
}

static int info_run(const info_options_t *options)
{
    ucp_config_t *config;
    int done;

    if (!info_check(ucp_config_read(NULL, NULL, &config), "settings")) {
        return 0;
    }
    done = !options->print || info_settings(config, options);
    if (options->context || options->worker || options->endpoint || (options->mem != NULL)) {
        done = info_context(config, options) && done;
    }
    ucp_config_release(config);
    return done;
}

static int info_check_up(void)
{
    ucs_report_t *report         = ucs_report_shared;
    const info_options_t options = {.endpoint  = 1, .message = 1, .placement = "intra",
                                    .features  = UCP_FEATURE_TAG, .num_eps = 1, .num_ppn = 1};
    int done;

    ucs_report_open(report, "doctor", '[');
    info_doctor();
    done = info_run(&options);
    ucs_report_row(report, "state check found - cure", "%-5s %s: %s%s%s\n", done ? "ok" : "wrong",
                   "library", done ? "a message between two workers arrived" :
                   "no message between two workers", done ? "" : "; cure: ",
                   done ? "" : "the lines above, and UCX_LOG_LEVEL=info");
    ucs_report_close(report);
    return done;
}

static void info_version(void)
{
    Dl_info file = {0};

    (void)dladdr(dlsym(RTLD_DEFAULT, "ucp_get_version_string"), &file);
    ucs_report_row(ucs_report_shared, "api library path configured",
                   "# Library version: %s (Halyard %s)\n# Library path: %s\n"
                   "# Configured with: %s\n", ucp_get_version_string(), PACKAGE_VERSION,
                   (file.dli_fname != NULL) ? file.dli_fname : "unknown", INFO_CONFIGURED);
}

static void info_section(const char *name, char kind, void (*show)(void))
{
    ucs_report_open(ucs_report_shared, name, kind);
    show();
    ucs_report_close(ucs_report_shared);
}

/* Returns the exit code. Whatever fails, the document is whole. */
static int info_show(ucs_report_t *report, const info_options_t *options)
{
    ucs_status_t status = UCS_OK;
    int done;

    ucs_report_open(report, NULL, '{');
    ucs_report_data(report, "format", "%s", "halyard-info-1");
    if (options->version) {
        info_section("version", '{', info_version);
    }
    if (options->build) {
        info_section("build", '{', info_build);
    }
    if (options->system) {
        info_section("system", '{', info_system);
    }
    if (options->topology) {
        info_section("numa_nodes", '[', info_topology);
    }
    done = info_run(options);
    if (options->doctor) {
        done = info_check_up() && done;
    }
    if (options->devices) {
        ucs_report_open(report, "transports", '[');
        status = info_devices(options->transports);
        ucs_report_close(report);
    }
    ucs_report_close(report);
    done = info_written() && done;
    return (status != UCS_OK) ? EXIT_USAGE : (done ? 0 : EXIT_FAILED);
}

int main(int argc, char **argv)
{
    info_options_t options = {.transports = "all", .placement = "self", .features = UCP_FEATURE_TAG,
                              .err_mode = UCP_ERR_HANDLING_MODE_NONE, .num_eps = 1, .num_ppn = 1};
    ucs_report_t report;

    tool_stdout_keep();
    if (!info_parse(argc, argv, &options)) {
        return EXIT_USAGE;
    }
    ucs_report_init(&report, stdout, options.json);
    ucs_report_shared = &report;
    return info_show(&report, &options);
}
