/* Halyard: ucx_info: what the library is, how it is set, what it uses here, and why.
 *
 * Uses the public interface <ucp/api/ucp.h> only.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include <ucp/api/ucp.h>

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define EXIT_FAILED 1
#define EXIT_USAGE  2

typedef struct {
    int         version, settings, context, worker, endpoint;
    const char *mem_size; /* NULL: not asked for */
    const char *placement;
    uint64_t    features;
} info_options_t;

static const char info_help[] =
    "usage: ucx_info OPTIONS\n"
    "  -v          version\n"
    "  -c          settings (UCX_...), with the environment's values\n"
    "  -p          context: transports\n"
    "  -w          worker: its transports, and why some are not in use\n"
    "  -e          endpoint: which protocol serves which sizes, by which transport, provider\n"
    "              and device, and why not by others\n"
    "  -m SIZE     memory of that size, as the library allocates it\n"
    "  -u LETTERS  features: t(ag) r(ma) a(tomics) s(tream) m (active messages) w(akeup) (t)\n"
    "  -P PLACE    peer of the endpoint: self, intra (another worker of this node), inter (the\n"
    "              same over the network) (self)\n"
    "  -h          this text\n";

static int info_features_parse(const char *letters, uint64_t *features_p)
{
    static const struct {
        char     letter;
        uint64_t features;
    } table[] = {{'t', UCP_FEATURE_TAG},
                 {'r', UCP_FEATURE_RMA},
                 {'a', UCP_FEATURE_AMO32 | UCP_FEATURE_AMO64},
                 {'s', UCP_FEATURE_STREAM},
                 {'m', UCP_FEATURE_AM},
                 {'w', UCP_FEATURE_WAKEUP}};
    uint64_t features = 0;
    size_t i;

    for (; *letters != '\0'; ++letters) {
        for (i = 0; (i < sizeof(table) / sizeof(table[0])) && (table[i].letter != *letters); ++i) {
        }
        if (i == sizeof(table) / sizeof(table[0])) {
            return 0;
        }
        features |= table[i].features;
    }
    *features_p = features;
    return features != 0;
}

/* Returns 0 where the arguments make no sense, having said so. */
static int info_parse(int argc, char **argv, info_options_t *options)
{
    int letter;

    options->placement = "self";
    options->features  = UCP_FEATURE_TAG;
    while ((letter = getopt(argc, argv, "vcpwem:u:P:h")) != -1) {
        switch (letter) {
        case 'v': options->version = 1; break;
        case 'c': options->settings = 1; break;
        case 'p': options->context = 1; break;
        case 'w': options->worker = 1; break;
        case 'e': options->endpoint = 1; break;
        case 'm': options->mem_size = optarg; break;
        case 'P': options->placement = optarg; break;
        case 'u':
            if (!info_features_parse(optarg, &options->features)) {
                fprintf(stderr, "ucx_info: -u %s: letters of t r a s m w are expected\n", optarg);
                return 0;
            }
            break;
        case 'h':
            fputs(info_help, stdout);
            _exit(fflush(stdout) == 0 ? 0 : EXIT_FAILED);
        default:
            fputs(info_help, stderr);
            return 0;
        }
    }
    if ((strcmp(options->placement, "self") != 0) && (strcmp(options->placement, "intra") != 0) &&
        (strcmp(options->placement, "inter") != 0)) {
        fprintf(stderr, "ucx_info: -P %s: self, intra or inter is expected\n",
                options->placement);
        return 0;
    }
    if ((optind < argc) ||
        !(options->version || options->settings || options->context || options->worker ||
          options->endpoint || (options->mem_size != NULL))) {
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

static int info_endpoint(ucp_worker_h worker, ucp_worker_h peer)
{
    ucp_request_param_t force = {.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS,
                                 .flags        = UCP_EP_CLOSE_FLAG_FORCE};
    ucp_ep_params_t params    = {.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS |
                                            UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE,
                              .err_mode   = UCP_ERR_HANDLING_MODE_PEER};
    ucp_address_t *address;
    ucs_status_ptr_t request;
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
    ucp_ep_print_info(ep, stdout);
    request = ucp_ep_close_nbx(ep, &force);
    while (UCS_PTR_IS_PTR(request) && (ucp_request_check_status(request) == UCS_INPROGRESS)) {
        ucp_worker_progress(worker);
        ucp_worker_progress(peer);
    }
    if (UCS_PTR_IS_PTR(request)) {
        ucp_request_free(request);
    }
    return 1;
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
        done = info_endpoint(worker, peer);
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

static int info_run(ucp_config_t *config, const info_options_t *options)
{
    ucp_params_t params = {.field_mask = UCP_PARAM_FIELD_FEATURES,
                           .features   = options->features};
    ucp_context_h context;
    int done = 1;

    if (options->settings) {
        ucp_config_print(config, stdout, "UCX settings",
                         UCS_CONFIG_PRINT_CONFIG | UCS_CONFIG_PRINT_HEADER);
    }
    if (!options->context && !options->worker && !options->endpoint &&
        (options->mem_size == NULL)) {
        return 1;
    }
    if ((strcmp(options->placement, "inter") == 0) &&
        !info_check(ucp_config_modify(config, "TLS", "net"), "network")) {
        return 0;
    }
    if (!info_check(ucp_init(&params, config, &context), "context")) {
        return 0;
    }
    if (options->context) {
        ucp_context_print_info(context, stdout);
    }
    if (options->mem_size != NULL) {
        ucp_mem_print_info(options->mem_size, context, stdout);
    }
    if (options->worker || options->endpoint) {
        done = info_workers(context, options);
    }
    ucp_cleanup(context);
    return done;
}

int main(int argc, char **argv)
{
    info_options_t options = {0};
    ucp_config_t *config;
    int done;

    if (!info_parse(argc, argv, &options)) {
        return EXIT_USAGE;
    }
    if (options.version) {
        printf("# Library version: %s (Halyard " PACKAGE_VERSION ")\n", ucp_get_version_string());
    }
    if (!info_check(ucp_config_read(NULL, NULL, &config), "settings")) {
        return EXIT_FAILED;
    }
    done = info_run(config, &options);
    ucp_config_release(config);
    return (done && (fflush(stdout) == 0)) ? 0 : EXIT_FAILED;
}
