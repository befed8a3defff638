/* Halyard: ucx_info: what the library is, how it is set, what it uses here, and why.
 *
 * Letters mean what they mean in UCX's tool of that name. Letters of it that have no meaning here
 * are refused with the reason.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "info.h"

#include <ctype.h>
#include <getopt.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <ucp/api/ucp.h>
#include <ucs/config/memory.h>
#include <ucs/config/types.h>
#include <unistd.h>

#define EXIT_FAILED 1
#define EXIT_USAGE  2

#define OPTION_DOCTOR 256
#define PATIENCE_S    20 /* for what this process does with itself */

typedef struct {
    int version, build, system, topology, devices, context, worker, endpoint, doctor;
    int message; /* the endpoint is used, not shown */
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
    "  -v               version\n"
    "  -b               how the library was built\n"
    "  -s               system: processors, memory, pages, identity of the node\n"
    "  -T               NUMA nodes and their distances\n"
    "  -d               transports: devices, limits, costs, why some do not open\n"
    "  -c               settings (UCX_...), with the environment's values\n"
    "  -p               context: transports\n"
    "  -w               worker: its transports, and why some are not in use\n"
    "  -e               endpoint: which protocol serves which sizes, by which transport,\n"
    "                   provider and device, and why not by others\n"
    "  -m SIZE[,TYPE]   memory of that size and kind (host), as the library allocates it\n"
    "  --doctor         check of this machine, with cures, and a message through the library\n"
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
    return isdigit((unsigned char)text[0]) && (*end == '\0') && (*count_p > 0);
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
        expected = "letters of t r a s m x d w e +";
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
    fputs(info_help, stderr);
    return 0;
}

/* Returns 0 where the arguments make no sense, having said so. */
static int info_parse(int argc, char **argv, info_options_t *options)
{
    static const struct option words[] = {{"help", no_argument, NULL, 'h'},
                                          {"doctor", no_argument, NULL, OPTION_DOCTOR},
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
        case 't': options->transports = optarg; break;
        case 'm': case 'u': case 'n': case 'N': case 'D': case 'P':
            if (!info_parse_argument(letter, optarg, options)) {
                return 0;
            }
            break;
        case 'h':
            fputs(info_help, stdout);
            _exit(fflush(stdout) == 0 ? 0 : EXIT_FAILED);
        default:
            return info_refuse(letter);
        }
    }
    if ((optind < argc) ||
        !(options->version || options->build || options->system || options->topology ||
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
        ucp_ep_print_info(ep, stdout);
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
        ucp_worker_print_info(worker, stdout);
    }
    if (peer != worker) {
        ucp_worker_destroy(peer);
    }
    ucp_worker_destroy(worker);
    return done;
}

/* A line that sets something, perhaps as a comment: the length of its name, else 0. */
static size_t info_setting_length(const char *line)
{
    size_t skipped = (strncmp(line, "# ", 2) == 0) ? 2 : 0;
    size_t length  = strspn(line + skipped, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789");

    return ((length > 0) && (line[skipped + length] == '=')) ? skipped + length : 0;
}

/* Each setting is one line with comments before it: they are shown if its name has the filter.
 * Returns how many were. */
static unsigned info_print_filtered(char *text, const char *filter)
{
    char *line, *block = text, *end;
    unsigned shown = 0;
    size_t length;

    for (line = text; (end = strchr(line, '\n')) != NULL; line = end + 1) {
        length = info_setting_length(line);
        if (length == 0) {
            continue;
        }
        line[length] = '\0';
        if (strcasestr(line, filter) != NULL) {
            line[length] = '=';
            block       += strspn(block, "\n");
            printf("%.*s", (int)(end + 1 - block), block);
            ++shown;
        }
        block = end + 1;
    }
    return shown;
}

static int info_settings(const ucp_config_t *config, const info_options_t *options)
{
    ucs_config_print_flags_t flags = options->print;
    char *text                     = NULL;
    unsigned shown;
    size_t length;
    FILE *stream;

    if (options->filter == NULL) {
        ucp_config_print(config, stdout, "UCX settings", flags);
        return 1;
    }
    stream = open_memstream(&text, &length);
    if (stream == NULL) {
        return info_check(UCS_ERR_NO_MEMORY, "settings");
    }
    ucp_config_print(config, stream, NULL, flags);
    if (fclose(stream) != 0) {
        free(text);
        return info_check(UCS_ERR_NO_MEMORY, "settings");
    }
    shown = info_print_filtered(text, options->filter);
    free(text);
    return info_check((shown > 0) ? UCS_OK : UCS_ERR_NO_ELEM, options->filter);
}

static int info_memory(ucp_context_h context, const info_options_t *options)
{
    ucp_mem_h mem;

    if (!info_check(ucp_mem_map(context, &options->mem_params, &mem), "memory")) {
        return 0;
    }
    ucp_mem_unmap(context, mem);
    ucp_mem_print_info(options->mem, context, stdout);
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
    if (!info_check(ucp_init(&params, config, &context), "context")) {
        return 0;
    }
    if (options->context) {
        ucp_context_print_info(context, stdout);
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
    const info_options_t options = {.endpoint  = 1, .message = 1, .placement = "intra",
                                    .features  = UCP_FEATURE_TAG, .num_eps = 1, .num_ppn = 1};
    int done;

    info_doctor();
    done = info_run(&options);
    printf(done ? "ok    library: a message between two workers arrived\n" :
                  "wrong library: no message between two workers; cure: the lines above, and "
                  "UCX_LOG_LEVEL=info\n");
    return done;
}

int main(int argc, char **argv)
{
    info_options_t options = {.transports = "all", .placement = "self", .features = UCP_FEATURE_TAG,
                              .err_mode = UCP_ERR_HANDLING_MODE_NONE, .num_eps = 1, .num_ppn = 1};
    ucs_status_t status    = UCS_OK;
    int done;

    if (!info_parse(argc, argv, &options)) {
        return EXIT_USAGE;
    }
    if (options.version) {
        printf("# Library version: %s (Halyard " PACKAGE_VERSION ")\n", ucp_get_version_string());
    }
    if (options.build) {
        info_build();
    }
    if (options.system) {
        info_system();
    }
    if (options.topology) {
        info_topology();
    }
    done = info_run(&options);
    if (options.doctor) {
        done = info_check_up() && done;
    }
    if (options.devices) {
        status = info_devices(options.transports);
    }
    return (status != UCS_OK) ? EXIT_USAGE :
           ((done && (fflush(stdout) == 0)) ? 0 : EXIT_FAILED);
}
