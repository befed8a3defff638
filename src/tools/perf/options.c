/* Halyard: command line of ucx_perftest.
 *
 * Letters mean what they mean in UCX's tool of that name. Letters of it that have no meaning here
 * are refused with the reason, not ignored: a figure measured without them would be another one.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "options.h"
#include "watch.h"

#include <getopt.h>
#include <stdlib.h>
#include <string.h>

/* The table's message rate is taken with this size whatever -s says. */
#define PERF_SIZE_LEAST 8

enum {
    OPTION_SELF = 256,
    OPTION_JSON,
    OPTION_CSV,
    OPTION_MD,
    OPTION_PLOT,
    OPTION_COMPARE,
    OPTION_TOLERANCE,
    OPTION_QUICK,
    OPTION_ROUNDS,
    OPTION_TIMEOUT,
    OPTION_SEED,
    OPTION_DEVICE
};

static const struct option long_options[] = {
    {"self", no_argument, NULL, OPTION_SELF},
    {"json", required_argument, NULL, OPTION_JSON},
    {"csv", required_argument, NULL, OPTION_CSV},
    {"md", required_argument, NULL, OPTION_MD},
    {"plot", required_argument, NULL, OPTION_PLOT},
    {"compare", required_argument, NULL, OPTION_COMPARE},
    {"tolerance", required_argument, NULL, OPTION_TOLERANCE},
    {"quick", no_argument, NULL, OPTION_QUICK},
    {"rounds", required_argument, NULL, OPTION_ROUNDS},
    {"timeout", required_argument, NULL, OPTION_TIMEOUT},
    {"seed", required_argument, NULL, OPTION_SEED},
    {"device", required_argument, NULL, OPTION_DEVICE},
    {"help", no_argument, NULL, 'h'},
    {NULL, 0, NULL, 0}
};

/* Letters of UCX's tool that are refused, and why. */
static const struct {
    char        letter;
    const char *reason;
} refused_letters[] = {
    {'d', "devices of transports are chosen by UCX_NET_DEVICES"},
    {'x', "transports are chosen by UCX_TLS"},
    {'W', "it belongs to uct-level tests; the window of a ucp test is -O"},
    {'A', "it belongs to uct-level tests"},
    {'i', "scatter-gather with gaps is not measured; -D iov sends four pieces without"},
    {'a', "GPUs are chosen by --device"},
    {'g', "no daemon moves data for this tool"},
    {'G', "no daemon moves data for this tool"},
    {'K', "nothing here corresponds to it"},
    {'L', "it belongs to GPU kernels"},
    {'F', "it belongs to GPU kernels"},
    {'Y', "it belongs to GPU kernels"},
};

static const char short_options[] = ":t:s:n:w:c:O:m:D:p:6fvNqhT:M:VUCeE:R:H:I"
                                    "d:x:W:A:b:i:loBzyr:P:KagGLFYX";

static int usage_error(void)
{
    fputs("Try `ucx_perftest -h`, or `ucx_perftest --self`.\n", stderr);
    return PERF_EXIT_USAGE;
}

static int parse_test(perf_options_t *options, const char *name)
{
    const char *instead;

    if (strcmp(name, "limits") == 0) {
        options->limits_only = 1;
        options->mode        = PERF_MODE_SELF;
        return 0;
    }
    if (strcmp(name, "audit") == 0) {
        options->audit = 1;
        return 0;
    }
    options->op = perf_op_find(name);
    if (options->op >= 0) {
        return 0;
    }
    instead = perf_op_uct_name(name);
    if (instead != NULL) {
        perf_error("test '%s' runs at uct level, which this tool does not measure; the same at "
                   "ucp level is -t %s", name, instead);
    } else {
        perf_error("unknown test '%s'", name);
    }
    return -1;
}

static int parse_cpus(perf_options_t *options, const char *text)
{
    const char *next = text;
    char *end;
    long cpu;

    options->cpu_count = 0;
    do {
        cpu = strtol(next, &end, 10);
        if ((end == next) || (cpu < 0) || (cpu > 65535) ||
            ((*end != ',') && (*end != '\0')) || (options->cpu_count == PERF_CPUS_MAX)) {
            perf_error("option -c wants processor numbers such as 0,1, not '%s'", text);
            return -1;
        }
        options->cpus[options->cpu_count++] = (int)cpu;
        next                                = end + 1;
    } while (*end == ',');
    return 0;
}

static int parse_percents(perf_options_t *options, const char *text)
{
    const char *next = text;
    double value;
    char *end;

    options->percent_count = 0;
    do {
        value = strtod(next, &end);
        if ((end == next) || !(value > 0) || (value > 100) ||
            ((*end != ',') && (*end != '\0')) ||
            (options->percent_count == PERF_PERCENTS_MAX)) {
            perf_error("option -R wants up to %d percentiles such as 50,99,99.9, not '%s'",
                       PERF_PERCENTS_MAX, text);
            return -1;
        }
        options->percents[options->percent_count++] = value;
        next                                        = end + 1;
    } while (*end == ',');
    return 0;
}

/* "SEND" or "SEND,RECV" of two words; bits[0], bits[1] are set where the second word stands. */
static int parse_pair(char option, const char *text, const char *first, const char *second,
                      uint32_t send_bit, uint32_t recv_bit, uint32_t *flags)
{
    const char *comma = strchr(text, ',');
    size_t length     = (comma != NULL) ? (size_t)(comma - text) : strlen(text);
    const char *parts[2] = {text, (comma != NULL) ? comma + 1 : NULL};
    size_t lengths[2] = {length, (comma != NULL) ? strlen(comma + 1) : 0};
    int i;

    *flags &= ~(send_bit | recv_bit);
    for (i = 0; (i < 2) && (parts[i] != NULL); ++i) {
        if ((second != NULL) && (lengths[i] == strlen(second)) &&
            (strncmp(parts[i], second, lengths[i]) == 0)) {
            *flags |= (i == 0) ? send_bit : recv_bit;
        } else if ((lengths[i] != strlen(first)) ||
                   (strncmp(parts[i], first, lengths[i]) != 0)) {
            perf_error("option -%c: '%.*s' is not supported; possible: %s%s%s", option,
                       (int)lengths[i], parts[i], first, (second != NULL) ? ", " : "",
                       (second != NULL) ? second : "");
            return -1;
        }
    }
    return 0;
}

/* One name for both sides, or one for each. */
static int parse_memory(perf_options_t *options, const char *text)
{
    const char *comma     = strchr(text, ',');
    const char *parts[2]  = {text, (comma != NULL) ? comma + 1 : text};
    size_t lengths[2]     = {(comma != NULL) ? (size_t)(comma - text) : strlen(text), 0};
    unsigned kind, i;

    lengths[1] = (comma != NULL) ? strlen(comma + 1) : lengths[0];
    for (i = 0; i < 2; ++i) {
        for (kind = 0; kind < PERF_MEMORY_COUNT; ++kind) {
            if ((strlen(perf_memory_names[kind]) == lengths[i]) &&
                (strncmp(perf_memory_names[kind], parts[i], lengths[i]) == 0)) {
                break;
            }
        }
        if (kind == PERF_MEMORY_COUNT) {
            perf_error("option -m: memory of kind '%.*s' is not known (-h lists those that are)",
                       (int)lengths[i], parts[i]);
            return -1;
        }
        options->memory[i] = (uint8_t)kind;
    }
    return 0;
}

static int parse_devices(perf_options_t *options, const char *text)
{
    const unsigned wanted = (strchr(text, ',') != NULL) ? 2 : 1;
    const char *next      = text;
    char *end             = NULL;
    long number;
    unsigned i;

    for (i = 0; (i < wanted) && ((i == 0) || (*end == ',')); ++i) {
        number = strtol(next, &end, 10);
        if ((end == next) || (number < 0) || (number > 127)) {
            break;
        }
        options->device[0] = (i == 0) ? (int8_t)number : options->device[0];
        options->device[1] = (int8_t)number;
        next               = end + 1;
    }
    if ((i != wanted) || (*end != '\0')) {
        perf_error("option --device wants numbers of GPUs such as 0 or 0,1, not '%s'", text);
        return -1;
    }
    options->flags |= PERF_FLAG_DEVICE;
    return 0;
}

static int parse_thread_mode(perf_options_t *options, const char *text)
{
    static const struct {
        const char       *name;
        ucs_thread_mode_t mode;
    } modes[] = {{"single", UCS_THREAD_MODE_SINGLE},
                 {"serialized", UCS_THREAD_MODE_SERIALIZED},
                 {"multi", UCS_THREAD_MODE_MULTI}};
    unsigned i;

    for (i = 0; i < 3; ++i) {
        if (strcmp(modes[i].name, text) == 0) {
            options->thread_mode = modes[i].mode;
            return 0;
        }
    }
    perf_error("option -M wants single, serialized or multi, not '%s'", text);
    return -1;
}

static int parse_wait(perf_options_t *options, const char *text)
{
    options->flags &= ~(uint32_t)PERF_FLAG_SLEEP;
    if (strcmp(text, "sleep") == 0) {
        options->flags |= PERF_FLAG_SLEEP;
    } else if (strcmp(text, "poll") != 0) {
        perf_error("option -E wants poll or sleep, not '%s'", text);
        return -1;
    }
    return 0;
}

static int parse_u32(const char *option, const char *text, uint64_t min, uint64_t max,
                     unsigned *value_p)
{
    uint64_t value;

    if (perf_number_parse(option, text, min, max, &value) != 0) {
        return -1;
    }
    *value_p = (unsigned)value;
    return 0;
}

static int parse_file(const char *option, const char *name, const char **file_p)
{
    if (name[0] == '\0') {
        perf_error("option %s wants a file name", option);
        return -1;
    }
    *file_p = name;
    return 0;
}

static int parse_output(perf_options_t *options, const char *option, const char *name,
                        const char **file_p)
{
    options->no_text |= (strcmp(name, "-") == 0);
    return parse_file(option, name, file_p);
}

static int parse_plot(perf_options_t *options, const char *name)
{
    size_t length = strlen(name);

    if ((length < 5) || ((strcmp(name + length - 4, ".svg") != 0) &&
                         (strcmp(name + length - 4, ".png") != 0))) {
        perf_error("option --plot wants a file name that ends in .svg or .png, not '%s'", name);
        return -1;
    }
    options->plot = name;
    return 0;
}

static int parse_tolerance(perf_options_t *options, const char *text)
{
    char *end;

    options->tolerance = strtod(text, &end);
    if ((end == text) || (*end != '\0') || !(options->tolerance > 0)) {
        perf_error("option --tolerance wants a ratio such as 1.1, not '%s'", text);
        return -1;
    }
    return 0;
}

/* UCX's newer tool takes a word after -e, the older one none. */
static int parse_error_mode(perf_options_t *options, int argc, char **argv)
{
    const char *word = (optind < argc) ? argv[optind] : "";

    options->flags |= PERF_FLAG_ERR_PEER;
    if (strcmp(word, "failover") == 0) {
        perf_error("option -e: failover is not supported: no other lane takes over from a failed "
                   "one; possible: none, peer");
        return -1;
    }
    if (strcmp(word, "none") == 0) {
        options->flags &= ~(uint32_t)PERF_FLAG_ERR_PEER;
    }
    optind += (strcmp(word, "none") == 0) || (strcmp(word, "peer") == 0);
    return 0;
}

static int refuse_letter(int letter)
{
    unsigned i;

    for (i = 0; i < sizeof(refused_letters) / sizeof(refused_letters[0]); ++i) {
        if (refused_letters[i].letter == letter) {
            perf_error("option -%c is not available: %s", letter, refused_letters[i].reason);
            return -1;
        }
    }
    return -1;
}

static int parse_long(perf_options_t *options, int option, const char *value)
{
    switch (option) {
    case OPTION_SELF:
        options->mode = PERF_MODE_SELF;
        return 0;
    case OPTION_JSON:
        return parse_output(options, "--json", value, &options->json);
    case OPTION_CSV:
        return parse_output(options, "--csv", value, &options->csv);
    case OPTION_MD:
        return parse_output(options, "--md", value, &options->md);
    case OPTION_PLOT:
        return parse_plot(options, value);
    case OPTION_COMPARE:
        options->mode = PERF_MODE_COMPARE;
        return parse_file("--compare", value, &options->compare[0]);
    case OPTION_TOLERANCE:
        return parse_tolerance(options, value);
    case OPTION_QUICK:
        options->quick = 1;
        return 0;
    case OPTION_ROUNDS:
        return parse_u32("--rounds", value, 1, PERF_ROUNDS_MAX, &options->rounds);
    case OPTION_TIMEOUT:
        options->timeout_given = 1;
        return parse_u32("--timeout", value, 1, 86400, &options->timeout_s);
    case OPTION_DEVICE:
        return parse_devices(options, value);
    case OPTION_SEED:
        return perf_number_parse("--seed", value, 0, UINT64_MAX, &options->seed);
    default:
        return -1;
    }
}

static int parse_short(perf_options_t *options, int option, const char *value)
{
    switch (option) {
    case 't':
        return parse_test(options, value);
    case 's':
        return perf_sizes_parse(value, options->sizes, PERF_SIZES_MAX, &options->size_count);
    case 'n':
        return perf_number_parse("-n", value, 1, UINT64_C(1) << 40, &options->iters);
    case 'w':
        return perf_number_parse("-w", value, 0, UINT64_C(1) << 32, &options->warmup);
    case 'c':
        return parse_cpus(options, value);
    case 'O':
        return parse_u32("-O", value, 1, PERF_WINDOW_MAX, &options->window);
    case 'm':
        return parse_memory(options, value);
    case 'D':
        return parse_pair('D', value, "contig", "iov", PERF_FLAG_SEND_IOV, PERF_FLAG_RECV_IOV,
                          &options->flags);
    case 'p':
        return parse_u32("-p", value, 1, 65535, &options->port);
    case 'T':
        return parse_u32("-T", value, 1, PERF_THREADS_MAX, &options->threads);
    case 'M':
        return parse_thread_mode(options, value);
    case 'E':
        return parse_wait(options, value);
    case 'R':
        return parse_percents(options, value);
    case 'P':
        return parse_u32("-P", value, 0, 1, &options->use_ranks);
    case 'b':
        if (options->batch != NULL) {
            perf_error("option -b: one batch file at most");
            return -1;
        }
        return parse_file("-b", value, &options->batch);
    case 'r':
        if (strcmp(value, "recv") == 0) {
            return 0;
        }
        perf_error("option -r: '%s' is not measured; possible: recv", value);
        return -1;
    case 'H':
        return parse_u32("-H", value, 0, 4096, &options->am_header);
    default:
        return refuse_letter(option);
    }
}

/* Letters that take no value. Returns 0 if it was one. */
static int parse_switch(perf_options_t *options, int option)
{
    static const struct {
        char     letter;
        uint32_t flag;
    } flags[] = {{'V', PERF_FLAG_VALIDATE}, {'U', PERF_FLAG_UNEXPECTED}, {'C', PERF_FLAG_WILDCARD},
                 {'I', PERF_FLAG_WAKEUP},   {'z', PERF_FLAG_MEMH},       {'B', PERF_FLAG_NONBLOCK},
                 {'o', PERF_FLAG_PASSIVE},  {'y', PERF_FLAG_AM_COPY}};
    unsigned i;

    switch (option) {
    case '6':
        options->ipv6 = 1;
        return 0;
    case 'f':
        options->final_only = 1;
        return 0;
    case 'v':
        options->csv_stdout = 1;
        return 0;
    case 'N':
        options->numeric = 1;
        return 0;
    case 'q':
        options->quiet = 1;
        return 0;
    case 'h':
        options->mode = PERF_MODE_HELP;
        return 0;
    case 'l':
        options->mode = PERF_MODE_LOOPBACK;
        return 0;
    case 'X':
        options->explain = 1;
        return 0;
    default:
        break;
    }
    for (i = 0; i < sizeof(flags) / sizeof(flags[0]); ++i) {
        if (flags[i].letter == option) {
            options->flags |= flags[i].flag;
            return 0;
        }
    }
    return -1;
}

static void set_defaults(int argc, char **argv, perf_options_t *options_p)
{
    static const double percents[] = {50, 90, 99, 99.9};

    *options_p = (perf_options_t) {.mode          = PERF_MODE_SERVER,
                                   .op            = -1,
                                   .port          = 13337,
                                   .use_ranks     = 1,
                                   .warmup        = UINT64_MAX,
                                   .threads       = 1,
                                   .thread_mode   = UCS_THREAD_MODE_SINGLE,
                                   .seed          = 1,
                                   .device        = {-1, -1},
                                   .percent_count = 4,
                                   .timeout_s     = 30,
                                   .tolerance     = 1.1,
                                   .argc          = argc,
                                   .argv          = argv};
    memcpy(options_p->percents, percents, sizeof(percents));
}

static int check_sizes(const perf_options_t *options, const perf_op_t *op)
{
    unsigned i;

    for (i = 0; i < options->size_count; ++i) {
        if ((options->sizes[i] < op->size_min) ||
            ((op->size_max != 0) && (options->sizes[i] != 4) && (options->sizes[i] != 8))) {
            perf_error("test %s cannot run with %llu bytes (%s)", op->name,
                       (unsigned long long)options->sizes[i],
                       (op->size_max != 0) ? "4 or 8" : "at least 1");
            return -1;
        }
    }
    return 0;
}

/* What may not stand together, and what must. */
static int check_options(const perf_options_t *options)
{
    const perf_op_t *op = (options->op >= 0) ? &perf_ops[options->op] : NULL;

    if (((options->mode == PERF_MODE_CLIENT) || (options->mode == PERF_MODE_LOOPBACK)) &&
        (op == NULL)) {
        perf_error("which test? Name it with -t");
        return -1;
    }
    if (((options->mode == PERF_MODE_SELF) || (options->mode == PERF_MODE_LOOPBACK)) &&
        (options->cpu_count == 1)) {
        perf_error("option -c with --self or -l wants two processors, such as -c 0,1");
        return -1;
    }
    if (((options->mode == PERF_MODE_SELF) && (op == NULL)) || options->audit) {
        if ((options->flags & (PERF_FLAG_VALIDATE | PERF_FLAG_UNEXPECTED)) ||
            (options->threads > 1)) {
            perf_error("options -V, -U and -T go with one test (-t), not with a table");
            return -1;
        }
    }
    if (options->limits_only && (op != NULL)) {
        perf_error("-t limits and -t %s exclude each other", options->audit ? "audit" : op->name);
        return -1;
    }
    if (options->audit && ((op->features & UCP_FEATURE_RMA) ||
                           (options->flags & (PERF_FLAG_SEND_IOV | PERF_FLAG_RECV_IOV)))) {
        perf_error("-t audit: protocols can be forced for contiguous messages only");
        return -1;
    }
    if (op == NULL) {
        return 0;
    }
    if (perf_op_refusal(op, options->memory) != NULL) {
        perf_error("test %s cannot run with -m %s,%s: %s", op->name,
                   perf_memory_names[options->memory[0]], perf_memory_names[options->memory[1]],
                   perf_op_refusal(op, options->memory));
        return -1;
    }
    if ((options->flags & PERF_FLAG_VALIDATE) && op->one_sided) {
        perf_error("option -V: test %s moves no messages that a receiver could check", op->name);
        return -1;
    }
    if ((options->flags & (PERF_FLAG_UNEXPECTED | PERF_FLAG_WILDCARD)) &&
        !(op->features & UCP_FEATURE_TAG)) {
        perf_error("options -U and -C belong to tag tests, not to %s", op->name);
        return -1;
    }
    if ((options->flags & PERF_FLAG_UNEXPECTED) && (op->run == perf_tag_exchange)) {
        perf_error("option -U: %s receives before it sends", op->name);
        return -1;
    }
    if ((options->flags & PERF_FLAG_PASSIVE) && !op->one_sided) {
        perf_error("option -o belongs to one-sided tests, not to %s", op->name);
        return -1;
    }
    if ((options->flags & PERF_FLAG_AM_COPY) && !(op->features & UCP_FEATURE_AM)) {
        perf_error("option -y belongs to active messages, not to %s", op->name);
        return -1;
    }
    if ((options->flags & (PERF_FLAG_SEND_IOV | PERF_FLAG_RECV_IOV)) &&
        (op->features & UCP_FEATURE_RMA)) {
        perf_error("option -D: %s takes contiguous memory only", op->name);
        return -1;
    }
    return check_sizes(options, op);
}

/* Words that are not options: the host, or the second file of --compare. */
static int take_words(perf_options_t *options, int argc, char **argv)
{
    if (options->mode == PERF_MODE_COMPARE) {
        if (optind + 1 != argc) {
            perf_error("--compare wants two files: --compare A.json B.json");
            return -1;
        }
        options->compare[1] = argv[optind];
        return 0;
    }
    if (optind >= argc) {
        return 0;
    }
    if (optind + 1 < argc) {
        perf_error("unexpected word '%s' (one host name at most)", argv[optind + 1]);
        return -1;
    }
    if ((options->mode == PERF_MODE_SELF) || (options->mode == PERF_MODE_LOOPBACK)) {
        perf_error("a host name ('%s') and --self or -l exclude each other", argv[optind]);
        return -1;
    }
    options->host = argv[optind];
    if (options->mode == PERF_MODE_SERVER) {
        options->mode = PERF_MODE_CLIENT;
    }
    return 0;
}

/* What both sides must agree on. Fails when the sizes do not fit. */
static int fill_params(perf_options_t *options)
{
    const perf_op_t *row    = &perf_ops[(options->op >= 0) ? options->op : perf_op_find("tag_bw")];
    perf_params_t *params_p = &options->params;
    uint64_t wanted, most;
    unsigned i;

    memset(params_p, 0, sizeof(*params_p));
    strncpy(params_p->test, options->limits_only ? "limits" : row->name,
            sizeof(params_p->test) - 1);
    params_p->flags       = options->flags;
    params_p->threads     = options->threads;
    params_p->variants    = options->audit ? PERF_VARIANT_COUNT : 1;
    params_p->thread_mode = options->thread_mode;
    params_p->am_header   = options->am_header;
    params_p->seed        = options->seed;
    memcpy(params_p->memory, options->memory, sizeof(params_p->memory));
    memcpy(params_p->device, options->device, sizeof(params_p->device));
    params_p->window      = (options->window != 0) ? options->window :
                            (row->window != 0)     ? row->window : 1;
    for (i = 0; i < options->size_count; ++i) {
        if (options->sizes[i] > params_p->max_size) {
            params_p->max_size = options->sizes[i];
        }
    }
    if (params_p->max_size < PERF_SIZE_LEAST) {
        params_p->max_size = PERF_SIZE_LEAST;
    }
    wanted = params_p->max_size + PERF_GUARD_AND_REPLY;
    most   = PERF_MEMORY_MAX / 2 / params_p->threads;
    if (wanted > most) {
        perf_error("%u threads with messages of %llu bytes need more than the %llu MiB that "
                   "buffers may take", params_p->threads,
                   (unsigned long long)params_p->max_size,
                   (unsigned long long)(PERF_MEMORY_MAX >> 20));
        return -1;
    }
    if (options->flags & PERF_FLAG_VALIDATE) {
        /* Each message of a window keeps its own place until it is checked. */
        wanted *= params_p->window;
    }
    params_p->span = ((wanted < most) ? wanted : most) / 64 * 64 + ((wanted < most) ? 64 : 0);
    return 0;
}

/* Takes options and words; those that are there already stay unless named again. Returns 0, or -1
 * after an error message. */
static int parse_words(int argc, char **argv, perf_options_t *options_p)
{
    int option, status;

    optind = 0; /* GNU: start anew */
    opterr = 0;
    while ((option = getopt_long(argc, argv, short_options, long_options, NULL)) != -1) {
        if (option == '?') {
            if ((optopt != 0) && (optopt < 256)) {
                perf_error("unknown option -%c", optopt);
            } else {
                perf_error("unknown option, or a value it does not take: %s", argv[optind - 1]);
            }
            return -1;
        }
        if (option == ':') {
            perf_error("option %s wants a value", argv[optind - 1]);
            return -1;
        }
        if (option == 'e') {
            if (parse_error_mode(options_p, argc, argv) != 0) {
                return -1;
            }
            continue;
        }
        if (parse_switch(options_p, option) == 0) {
            if (options_p->mode == PERF_MODE_HELP) {
                return 0;
            }
            continue;
        }
        status = (option >= OPTION_SELF) ? parse_long(options_p, option, optarg) :
                                           parse_short(options_p, option, optarg);
        if (status != 0) {
            return -1;
        }
    }
    options_p->no_text |= options_p->csv_stdout;
    return take_words(options_p, argc, argv);
}

/* Two outputs in one file, or on standard output, are neither. */
static int check_outputs(const perf_options_t *options)
{
    const struct {
        const char *option, *file;
    } outputs[] = {{"-v", options->csv_stdout ? "-" : NULL}, {"--csv", options->csv},
                   {"--md", options->md}, {"--json", options->json}, {"--plot", options->plot}};
    unsigned i, k;

    for (i = 0; i < sizeof(outputs) / sizeof(outputs[0]); ++i) {
        for (k = 0; k < i; ++k) {
            if ((outputs[i].file != NULL) && (outputs[k].file != NULL) &&
                (strcmp(outputs[i].file, outputs[k].file) == 0)) {
                perf_error("options %s and %s write to the same place (%s): name another file for "
                           "one of them", outputs[k].option, outputs[i].option,
                           (strcmp(outputs[i].file, "-") == 0) ? "standard output" :
                                                                 outputs[i].file);
                return -1;
            }
        }
    }
    return 0;
}

/* Fills in what was not said, and checks the whole. */
static int complete(perf_options_t *options)
{
    if (options->audit && (options->op < 0)) {
        options->op = perf_op_find("tag_lat");
    }
    if (options->size_count == 0) {
        (void)perf_sizes_parse(perf_sizes_default(options), options->sizes, PERF_SIZES_MAX,
                               &options->size_count);
    }
    return (check_options(options) == 0) ? fill_params(options) : -1;
}

int perf_options_parse_test(int argc, char **argv, perf_options_t *options)
{
    return (parse_words(argc, argv, options) == 0) ? complete(options) : -1;
}

int perf_options_parse(int argc, char **argv, perf_options_t *options_p)
{
    int status;

    set_defaults(argc, argv, options_p);
    status = parse_words(argc, argv, options_p);
    if ((status == 0) && (options_p->mode != PERF_MODE_HELP)) {
        status = check_outputs(options_p);
    }
    if ((status == 0) && (options_p->mode != PERF_MODE_HELP)) {
        status = (options_p->batch != NULL) ? perf_batch_read(options_p) : complete(options_p);
    }
    return (status == 0) ? PERF_EXIT_OK : usage_error();
}
