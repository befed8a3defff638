/* Halyard: command line of ucx_perftest.
 *
 * Letters mean what they mean in UCX's tool of that name. Letters of it that have no meaning here
 * are refused with the reason, not ignored: a figure measured without them would be another one.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "options.h"
#include "report.h"
#include "watch.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

/* The table's message rate is taken with this size whatever -s says. */
#define PERF_SIZE_LEAST 8

#define TIMEOUT_S 30 /* of --timeout, where it is not given */

/* Words of -D before those for transports. */
#define UCT_WAYS 2

/* Names that -t takes. */
#define TEST_NAMES_MAX 32

/* Up to `most` numbers from 0 to `max`, such as "0,1". Returns how many they are, or -1. */
static int parse_numbers(const char *text, long max, int most, int *numbers)
{
    int count = 0;
    long number;
    char *end;

    for (;; text = end + 1) {
        number = strtol(text, &end, 10);
        if ((end == text) || (number < 0) || (number > max) || (count == most)) {
            return -1;
        }
        numbers[count++] = (int)number;
        if (*end != ',') {
            return (*end == '\0') ? count : -1;
        }
    }
}

static int parse_cpus(perf_options_t *options, const char *text)
{
    int count = parse_numbers(text, 65535, PERF_CPUS_MAX, options->cpus);

    if (count < 0) {
        return perf_error("option -c wants processor numbers such as 0,1, not '%s'", text);
    }
    options->cpu_count = (unsigned)count;
    return 0;
}

/* Whether what tables say of it (%g) is its value, and not that of another. */
static int is_percentile(const perf_options_t *options, double value)
{
    char text[32];
    unsigned i;

    snprintf(text, sizeof(text), "%g", value);
    for (i = 0; (i < options->percent_count) && (options->percents[i] != value); ++i) {
    }
    return (value > 0) && (value <= 100) && (strtod(text, NULL) == value) &&
           (i == options->percent_count);
}

static int parse_percents(perf_options_t *options, const char *text)
{
    const char *next = text;
    double value;
    char *end;

    options->percent_count = 0;
    do {
        value = strtod(next, &end);
        if ((end == next) || !is_percentile(options, value) ||
            ((*end != ',') && (*end != '\0')) ||
            (options->percent_count == PERF_PERCENTS_MAX)) {
            return perf_error("option -R wants up to %d different percentiles of at most 6 "
                              "digits, such as 50,99,99.9, not '%s'", PERF_PERCENTS_MAX, text);
        }
        options->percents[options->percent_count++] = value;
        next                                        = end + 1;
    } while (*end == ',');
    return 0;
}

/* Which of the words "A", or each of "A,B" where two may be, is; one is both. Returns how many they
 * are, or -1 after an error message. */
static int find_words(const char *option, const char *const *words, unsigned count,
                      const char *text, int most, unsigned *found)
{
    char known[512] = "";
    int parts       = 0;
    size_t length;
    unsigned i;

    do {
        length = (parts + 1 < most) ? strcspn(text, ",") : strlen(text);
        for (i = 0; (i < count) && ((strlen(words[i]) != length) ||
                                    (strncmp(words[i], text, length) != 0)); ++i) {
        }
        if (i == count) {
            for (i = 0; i < count; ++i) {
                strncat(known, (i > 0) ? ", " : "", sizeof(known) - strlen(known) - 1);
                strncat(known, words[i], sizeof(known) - strlen(known) - 1);
            }
            return perf_error("option %s: '%.*s' is not supported; possible: %s", option,
                              (int)length, text, known);
        }
        found[parts++] = i;
        text          += length;
    } while (*text++ == ',');
    if (parts < most) {
        found[1] = found[0];
    }
    return parts;
}

static int parse_test(perf_options_t *options, const char *name)
{
    const char *names[TEST_NAMES_MAX];
    unsigned count = 0, i, found;
    char instead[16];
    int op;

    if (strcmp(name, "limits") == 0) {
        options->limits_only = 1;
        options->mode        = PERF_MODE_SELF;
        return 0;
    }
    if (strcmp(name, "audit") == 0) {
        options->audit = 1;
        return 0;
    }
    options->op = perf_op_find_test(name);
    if (options->op >= 0) {
        return 0;
    }
    /* UCX's add_lat, add_mr, fadd, swap and cswap */
    snprintf(instead, sizeof(instead), "ucp_%.*s", (int)strcspn(name, "_"), name);
    op = perf_op_find_test(instead);
    if ((op >= 0) && (perf_ops[op].kind == PERF_KIND_RATE)) {
        return perf_error("test '%s' is of uct level, where nothing corresponds to it: atomics are "
                          "the processor's, on mapped memory; at ucp level it is -t %s", name,
                          instead);
    }
    for (i = 0; (i < perf_op_count) && (count + 2 < TEST_NAMES_MAX); ++i) {
        if (perf_ops[i].kind != PERF_KIND_LIMIT) {
            names[count++] = perf_ops[i].name;
        }
    }
    names[count++] = "limits";
    names[count++] = "audit";
    return find_words("-t", names, count, name, 1, &found);
}

/* Halyard's name, or UCX's for what is the same. */
static int parse_transport(perf_options_t *options, const char *name)
{
    if ((strcmp(name, "posix") == 0) || (strcmp(name, "sysv") == 0)) {
        name = "mm";
    } else if (strcmp(name, "tcp") == 0) {
        name = "ofi";
    }
    if ((name[0] == '\0') || (strlen(name) >= sizeof(options->params.transport))) {
        return perf_error("option -x wants a transport such as mm (ucx_info -d)");
    }
    memcpy(options->params.transport, name, strlen(name) + 1);
    return 0;
}

/* Shared memory is a device to UCX's tool; networks are told by the environment, as the library is,
 * which holds for all tests of the process. */
static int parse_device(perf_options_t *options, const char *name)
{
    if (options->batch != NULL) {
        return perf_error("option -d: in a batch file UCX_NET_DEVICES is one for all tests");
    }
    options->has_device = 1;
    return ((strcmp(name, "memory") == 0) || (strcmp(name, "self") == 0)) ? 0 :
           setenv("UCX_NET_DEVICES", name, 1);
}

static void set_flag(perf_options_t *options, uint32_t flag, int is_set)
{
    options->params.flags = (options->params.flags & ~flag) | (is_set ? flag : 0);
}

/* "SEND" or "SEND,RECV"; or how a transport moves data. */
static int parse_pieces(perf_options_t *options, const char *text)
{
    static const char *const words[] = {"contig", "iov", "short", "bcopy", "zcopy"};
    unsigned kinds[2] = {0, 0};
    int count         = find_words("-D", words, 5, text, 2, kinds);
    int is_way;

    is_way = (count == 1) && (kinds[0] >= UCT_WAYS);
    if ((count == 2) && ((kinds[0] >= UCT_WAYS) || (kinds[1] >= UCT_WAYS))) {
        return perf_error("option -D: %s stands alone",
                          words[(kinds[0] >= UCT_WAYS) ? kinds[0] : kinds[1]]);
    }
    options->params.way = is_way ? kinds[0] - UCT_WAYS + PERF_UCT_SHORT : PERF_UCT_NO_WAY;
    set_flag(options, PERF_FLAG_SEND_IOV, kinds[0] == 1);
    set_flag(options, PERF_FLAG_RECV_IOV, (count == 2) && (kinds[1] == 1));
    return count;
}

/* One name for both sides, or one for each. */
static int parse_memory(perf_options_t *options, const char *text)
{
    unsigned kinds[2] = {0, 0};
    int count         = find_words("-m", perf_memory_names, PERF_MEMORY_COUNT, text, 2, kinds);

    options->params.memory[0] = (uint8_t)kinds[0];
    options->params.memory[1] = (uint8_t)kinds[1];
    return count;
}

static int parse_devices(perf_options_t *options, const char *text)
{
    int numbers[2];
    int count = parse_numbers(text, 127, 2, numbers);

    if (count < 0) {
        return perf_error("option --device wants numbers of GPUs such as 0 or 0,1, not '%s'", text);
    }
    options->params.device[0] = (int8_t)numbers[0];
    options->params.device[1] = (int8_t)numbers[count - 1];
    set_flag(options, PERF_FLAG_DEVICE, 1);
    return 0;
}

static int parse_batch(perf_options_t *options, const char *name)
{
    if (options->batch != NULL) {
        return perf_error("option -b: one batch file at most");
    }
    options->batch = name;
    return 0;
}

static int parse_compare(perf_options_t *options, const char *name)
{
    options->mode       = PERF_MODE_COMPARE;
    options->compare[0] = name;
    return 0;
}

static int parse_plot(perf_options_t *options, const char *name)
{
    size_t length = strlen(name);

    if ((length < 5) || ((strcmp(name + length - 4, ".svg") != 0) &&
                         (strcmp(name + length - 4, ".png") != 0))) {
        return perf_error("option --plot wants a file name that ends in .svg or .png, not '%s'",
                          name);
    }
    options->files[PERF_OUTPUT_PLOT] = name;
    return 0;
}

static int parse_tolerance(perf_options_t *options, const char *text)
{
    char *end;

    options->tolerance = strtod(text, &end);
    if ((end == text) || (*end != '\0') || !(options->tolerance > 0)) {
        return perf_error("option --tolerance wants a ratio such as 1.1, not '%s'", text);
    }
    return 0;
}

/* What an option does. From KIND_U32 on it takes a value. */
typedef enum option_kind {
    KIND_REFUSED, /* UCX's tool has it; text: why this one has not */
    KIND_SET,     /* the field, an int, becomes min */
    KIND_FLAG,    /* the flag min is set */
    KIND_U32,     /* a number from min to max */
    KIND_U64,
    KIND_FILE,
    KIND_WORD,      /* one of max words; the field, an unsigned, is its number */
    KIND_WORD_FLAG, /* of two: with the second the flag min is set */
    KIND_PARSED   /* by a function */
} option_kind_t;

typedef struct option_row {
    char          letter; /* 0: none */
    const char   *name;   /* NULL: none */
    option_kind_t kind;
    size_t        field;
    uint64_t      min, max;
    const char   *text;
    const char *const *words;
    int         (*parse)(perf_options_t *options, const char *value); /* -1: it said an error */
} option_row_t;

#define FIELD(_field) offsetof(perf_options_t, _field)
#define REFUSED(_letter, _text) {.letter = _letter, .kind = KIND_REFUSED, .text = _text}
#define SET(_letter, _name, _field, _value) \
    {.letter = _letter, .name = _name, .kind = KIND_SET, .field = FIELD(_field), .min = _value}
#define FLAG(_letter, _flag) {.letter = _letter, .kind = KIND_FLAG, .min = _flag}
#define NUMBER(_letter, _name, _kind, _field, _min, _max) \
    {.letter = _letter, .name = _name, .kind = _kind, .field = FIELD(_field), .min = _min, \
     .max = _max}
#define FILE_NAME(_name, _field) {.name = _name, .kind = KIND_FILE, .field = FIELD(_field)}
#define WORD(_letter, _words, _field) \
    {.letter = _letter, .kind = KIND_WORD, .field = FIELD(_field), .words = _words, \
     .max = sizeof(_words) / sizeof(_words[0])}
#define WORD_FLAG(_letter, _words, _flag) \
    {.letter = _letter, .kind = KIND_WORD_FLAG, .min = _flag, .words = _words, \
     .max = sizeof(_words) / sizeof(_words[0])}
#define PARSED(_letter, _name, _parse) \
    {.letter = _letter, .name = _name, .kind = KIND_PARSED, .parse = _parse}

static const char *const thread_modes[] = {[UCS_THREAD_MODE_SINGLE]     = "single",
                                           [UCS_THREAD_MODE_SERIALIZED] = "serialized",
                                           [UCS_THREAD_MODE_MULTI]      = "multi"};
static const char *const waits[]        = {"poll", "sleep"};
static const char *const stream_ways[]  = {"recv"}; /* others of UCX's tool are not measured */

static const option_row_t rows[] = {
    SET('h', "help", mode, PERF_MODE_HELP),
    SET('l', NULL, mode, PERF_MODE_LOOPBACK),
    SET(0, "self", mode, PERF_MODE_SELF),
    PARSED(0, "compare", parse_compare),
    PARSED('t', NULL, parse_test),
    PARSED('b', NULL, parse_batch),
    PARSED('s', NULL, perf_sizes_parse),
    NUMBER('n', NULL, KIND_U64, iters, 1, UINT64_C(1) << 40),
    NUMBER('w', NULL, KIND_U64, warmup, 0, UINT64_C(1) << 32),
    NUMBER('O', NULL, KIND_U32, params.window, 1, PERF_WINDOW_MAX),
    NUMBER('H', NULL, KIND_U32, params.am_header, 0, 4096),
    NUMBER('T', NULL, KIND_U32, params.threads, 1, PERF_THREADS_MAX),
    WORD('M', thread_modes, params.thread_mode),
    PARSED('c', NULL, parse_cpus),
    PARSED('D', NULL, parse_pieces),
    PARSED('m', NULL, parse_memory),
    PARSED(0, "device", parse_devices),
    WORD_FLAG('E', waits, PERF_FLAG_SLEEP),
    PARSED('R', NULL, parse_percents),
    WORD_FLAG('r', stream_ways, 0),
    FLAG('e', PERF_FLAG_ERR_PEER),
    FLAG('V', PERF_FLAG_VALIDATE),
    FLAG('U', PERF_FLAG_UNEXPECTED),
    FLAG('C', PERF_FLAG_WILDCARD),
    FLAG('I', PERF_FLAG_WAKEUP),
    FLAG('z', PERF_FLAG_MEMH),
    FLAG('B', PERF_FLAG_NONBLOCK),
    FLAG('o', PERF_FLAG_PASSIVE),
    FLAG('y', PERF_FLAG_AM_COPY),
    NUMBER(0, "seed", KIND_U64, params.seed, 0, UINT64_MAX),
    SET(0, "quick", quick, 1),
    NUMBER(0, "rounds", KIND_U32, rounds, 1, PERF_ROUNDS_MAX),
    NUMBER(0, "timeout", KIND_U32, timeout_s, 1, 86400),
    NUMBER('p', NULL, KIND_U32, port, 1, 65535),
    NUMBER('P', NULL, KIND_U32, use_ranks, 0, 1),
    SET('6', NULL, ipv6, 1),
    SET('f', NULL, final_only, 1),
    SET('v', NULL, csv_stdout, 1),
    SET('N', NULL, numeric, 1),
    SET('X', NULL, explain, 1),
    SET('q', NULL, quiet, 1),
    FILE_NAME("json", files[PERF_OUTPUT_JSON]),
    FILE_NAME("csv", files[PERF_OUTPUT_CSV]),
    FILE_NAME("md", files[PERF_OUTPUT_MD]),
    PARSED(0, "plot", parse_plot),
    PARSED(0, "tolerance", parse_tolerance),
    PARSED('x', NULL, parse_transport),
    PARSED('d', NULL, parse_device),
    NUMBER('W', NULL, KIND_U32, params.window, 1, PERF_WINDOW_MAX),
    REFUSED('A', "transports are progressed by the thread that measures"),
    REFUSED('i', "scatter-gather with gaps is not measured; -D iov sends four pieces without"),
    REFUSED('a', "GPUs are chosen by --device"),
    REFUSED('g', "no daemon moves data for this tool"),
    REFUSED('G', "no daemon moves data for this tool"),
    REFUSED('K', "nothing here corresponds to it"),
    REFUSED('L', "it belongs to GPU kernels"),
    REFUSED('F', "it belongs to GPU kernels"),
    REFUSED('Y', "it belongs to GPU kernels"),
};

#define ROW_COUNT (sizeof(rows) / sizeof(rows[0]))
#define ROW_NAMED 256 /* what getopt_long() says for the first row, by its name */

/* The rows in the forms that getopt_long() takes. */
static void list_rows(char letters[2 * ROW_COUNT + 2], struct option names[ROW_COUNT + 1])
{
    size_t i;

    *letters++ = ':';
    for (i = 0; i < ROW_COUNT; ++i) {
        if (rows[i].letter != 0) {
            *letters++ = rows[i].letter;
            *letters   = ':';
            letters   += (rows[i].kind >= KIND_U32);
        }
        if (rows[i].name != NULL) {
            *names++ = (struct option) {.name    = rows[i].name,
                                        .has_arg = (rows[i].kind >= KIND_U32),
                                        .val     = ROW_NAMED + (int)i};
        }
    }
    *letters = '\0';
    *names   = (struct option) {.name = NULL};
}

static const option_row_t *find_row(int option)
{
    const option_row_t *row = rows;

    while ((option < ROW_NAMED) && (row->letter != option)) {
        ++row;
    }
    return (option < ROW_NAMED) ? row : &rows[option - ROW_NAMED];
}

/* A number from the row's min to its max. */
static int parse_number(const char *option, const char *text, const option_row_t *row,
                        uint64_t *value_p)
{
    unsigned long long value;
    char *end;

    errno = 0;
    value = strtoull(text, &end, 10);
    if (!isdigit((unsigned char)text[0]) || (*end != '\0') || (errno != 0) || (value < row->min) ||
        (value > row->max)) {
        return perf_error("option %s wants a number from %llu to %llu, not '%s'", option,
                          (unsigned long long)row->min, (unsigned long long)row->max, text);
    }
    *value_p = value;
    return 0;
}

static int apply_row(perf_options_t *options, const option_row_t *row, const char *value)
{
    const char letter[] = {'-', row->letter, '\0'};
    void *field         = (char *)options + row->field;
    uint64_t number = 0;
    unsigned word;
    char option[16];

    snprintf(option, sizeof(option), "%s%s", (row->letter != 0) ? letter : "--",
             (row->letter != 0) ? "" : row->name);
    switch (row->kind) {
    case KIND_REFUSED:
        return perf_error("option %s is not available: %s", option, row->text);
    case KIND_SET:
        *(int *)field = (int)row->min;
        return 0;
    case KIND_FLAG:
        set_flag(options, (uint32_t)row->min, 1);
        return 0;
    case KIND_U32:
    case KIND_U64:
        if (parse_number(option, value, row, &number) != 0) {
            return -1;
        }
        if (row->kind == KIND_U32) {
            *(unsigned *)field = (unsigned)number;
        } else {
            *(uint64_t *)field = number;
        }
        return 0;
    case KIND_FILE:
        if (value[0] == '\0') {
            return perf_error("option %s wants a file name", option);
        }
        *(const char **)field = value;
        return 0;
    case KIND_WORD:
    case KIND_WORD_FLAG:
        if (find_words(option, row->words, (unsigned)row->max, value, 1, &word) < 0) {
            return -1;
        }
        if (row->kind == KIND_WORD) {
            *(unsigned *)field = word;
        } else {
            set_flag(options, (uint32_t)row->min, word == 1);
        }
        return 0;
    case KIND_PARSED:
        return row->parse(options, value);
    }
    return -1;
}

/* UCX's newer tool takes a word after -e, the older one none. */
static int take_error_mode(perf_options_t *options, const char *word)
{
    if (strcmp(word, "failover") == 0) {
        return perf_error("option -e: failover is not supported: no other lane takes over from a "
                          "failed one; possible: none, peer");
    }
    if (strcmp(word, "none") == 0) {
        set_flag(options, PERF_FLAG_ERR_PEER, 0);
    }
    optind += (strcmp(word, "none") == 0) || (strcmp(word, "peer") == 0);
    return 0;
}

static void set_defaults(int argc, char **argv, perf_options_t *options_p)
{
    static const double percents[] = {50, 90, 99, 99.9};

    *options_p = (perf_options_t) {.mode          = PERF_MODE_SERVER,
                                   .op            = -1,
                                   .port          = 13337,
                                   .use_ranks     = 1,
                                   .warmup        = UINT64_MAX,
                                   .params        = {.flags       = PERF_FLAG_ERR_PEER,
                                                     .threads     = 1,
                                                     .thread_mode = UCS_THREAD_MODE_SINGLE,
                                                     .seed        = 1,
                                                     .device      = {-1, -1}},
                                   .percent_count = 4,
                                   .tolerance     = 1.1,
                                   .argc          = argc,
                                   .argv          = argv};
    memcpy(options_p->percents, percents, sizeof(percents));
}

/* The test that stands for the table. */
static const perf_op_t *table_op(void)
{
    return &perf_ops[perf_op_find("tag_bw")];
}

static int check_sizes(const perf_options_t *options, const perf_op_t *op)
{
    unsigned i;

    for (i = 0; i < options->size_count; ++i) {
        if ((options->sizes[i] < op->size_min) ||
            ((op->size_max != 0) && (options->sizes[i] != 4) && (options->sizes[i] != 8))) {
            return perf_error("test %s cannot run with %llu bytes (%s)", op->name,
                              (unsigned long long)options->sizes[i],
                              (op->size_max != 0) ? "4 or 8" : "at least 1");
        }
    }
    return 0;
}

/* What may not stand together, and what must. */
static int check_options(const perf_options_t *options)
{
    const int is_here           = (options->mode == PERF_MODE_SELF) ||
                                  (options->mode == PERF_MODE_LOOPBACK);
    const perf_params_t *params = &options->params;
    const perf_op_t *op         = (options->op >= 0) ? &perf_ops[options->op] : NULL;
    const char *refusal;

    if ((op == NULL) && ((options->mode == PERF_MODE_CLIENT) ||
                         (options->mode == PERF_MODE_LOOPBACK))) {
        return perf_error("which test? Name it with -t");
    }
    if (is_here && (options->cpu_count == 1)) {
        return perf_error("option -c with --self or -l wants two processors, such as -c 0,1");
    }
    if ((((options->mode == PERF_MODE_SELF) && (op == NULL)) || options->audit) &&
        ((params->flags & (PERF_FLAG_VALIDATE | PERF_FLAG_UNEXPECTED)) || (params->threads > 1) ||
         (options->iters != 0) || (options->warmup != UINT64_MAX))) {
        return perf_error("options -V, -U, -T, -n and -w go with one test of messages (-t), not "
                          "with a table");
    }
    if (options->limits_only && (op != NULL)) {
        return perf_error("-t limits and -t %s exclude each other",
                          options->audit ? "audit" : op->name);
    }
    if (options->has_device && ((op == NULL) || !op->is_uct)) {
        return perf_error("option -d belongs to tests of a transport by itself (-x); devices of "
                          "others are chosen by UCX_NET_DEVICES");
    }
    if ((op == NULL) && (options->mode != PERF_MODE_SELF)) {
        return 0;
    }
    op      = (op != NULL) ? op : table_op();
    refusal = perf_op_refusal(op, params);
    if (refusal != NULL) {
        return perf_error("test %s cannot run so: %s", op->name, refusal);
    }
    return check_sizes(options, op);
}

/* Words that are not options: the host, or the second file of --compare. */
static int take_words(perf_options_t *options, int argc, char **argv)
{
    if (options->mode == PERF_MODE_COMPARE) {
        if (optind + 1 != argc) {
            return perf_error("--compare wants two files: --compare A.json B.json");
        }
        options->compare[1] = argv[optind];
        return 0;
    }
    if (optind >= argc) {
        return 0;
    }
    if (optind + 1 < argc) {
        return perf_error("unexpected word '%s' (one host name at most)", argv[optind + 1]);
    }
    if ((options->mode == PERF_MODE_SELF) || (options->mode == PERF_MODE_LOOPBACK)) {
        return perf_error("a host name ('%s') and --self or -l exclude each other", argv[optind]);
    }
    options->host = argv[optind];
    if (options->mode == PERF_MODE_SERVER) {
        options->mode = PERF_MODE_CLIENT;
    }
    return 0;
}

/* The rest of what both sides must agree on. Fails when the sizes do not fit. */
static int fill_params(perf_options_t *options)
{
    const perf_op_t *row    = (options->op >= 0) ? &perf_ops[options->op] : table_op();
    perf_params_t *params_p = &options->params;
    uint64_t wanted, most;
    unsigned i;

    strncpy(params_p->test, options->limits_only ? "limits" : row->name,
            sizeof(params_p->test) - 1);
    if (params_p->window == 0) { /* not named */
        params_p->window = (row->window != 0) ? row->window : 1;
    }
    if (row->is_uct && (params_p->way == PERF_UCT_NO_WAY)) {
        params_p->way = PERF_UCT_SHORT;
    }
    params_p->max_size = PERF_SIZE_LEAST;
    for (i = 0; i < options->size_count; ++i) {
        if (options->sizes[i] > params_p->max_size) {
            params_p->max_size = options->sizes[i];
        }
    }
    wanted = params_p->max_size + PERF_GUARD_AND_REPLY;
    most   = PERF_MEMORY_MAX / 2 / params_p->threads;
    if (wanted > most) {
        return perf_error("%u threads with messages of %llu bytes need more than the %llu MiB that "
                          "buffers may take", params_p->threads,
                          (unsigned long long)params_p->max_size,
                          (unsigned long long)(PERF_MEMORY_MAX >> 20));
    }
    if (params_p->flags & PERF_FLAG_VALIDATE) {
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
    char letters[2 * ROW_COUNT + 2];
    struct option names[ROW_COUNT + 1];
    const option_row_t *row;
    int option;

    list_rows(letters, names);
    optind = 0; /* GNU: start anew */
    opterr = 0;
    while ((option = getopt_long(argc, argv, letters, names, NULL)) != -1) {
        if (option == '?') {
            return ((optopt != 0) && (optopt < ROW_NAMED)) ?
                   perf_error("unknown option -%c", optopt) :
                   perf_error("unknown option, or a value it does not take: %s",
                              argv[optind - 1]);
        }
        if (option == ':') {
            return perf_error("option %s wants a value", argv[optind - 1]);
        }
        row = find_row(option);
        if ((apply_row(options_p, row, optarg) < 0) ||
            ((row->letter == 'e') &&
             (take_error_mode(options_p, (optind < argc) ? argv[optind] : "") != 0))) {
            return -1;
        }
        if (options_p->mode == PERF_MODE_HELP) {
            return 0;
        }
    }
    return take_words(options_p, argc, argv);
}

/* Two outputs in one file, or on standard output, are neither; the table gives way to one there. */
static int check_outputs(perf_options_t *options)
{
    const char *const *files = options->files;
    unsigned i, k;

    options->files[PERF_OUTPUT_STDOUT] = options->csv_stdout ? "-" : NULL;
    for (i = 0; i < PERF_OUTPUT_COUNT; ++i) {
        options->no_text |= (files[i] != NULL) && (strcmp(files[i], "-") == 0);
        for (k = 0; k < i; ++k) {
            if ((files[i] != NULL) && (files[k] != NULL) && (strcmp(files[i], files[k]) == 0)) {
                return perf_error("options %s and %s write to the same place (%s): name another "
                                  "file for one of them", perf_outputs[k].option,
                                  perf_outputs[i].option,
                                  (strcmp(files[i], "-") == 0) ? "standard output" : files[i]);
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
    options->params.variants = options->audit ? PERF_VARIANT_COUNT : 1;
    if (options->size_count == 0) {
        (void)perf_sizes_parse(options, perf_sizes_default(options));
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
    options_p->timeout_given = (options_p->timeout_s != 0);
    options_p->timeout_s     = options_p->timeout_given ? options_p->timeout_s : TIMEOUT_S;
    if ((status == 0) && (options_p->mode != PERF_MODE_HELP)) {
        status = (check_outputs(options_p) != 0) ? -1 :
                 (options_p->batch != NULL)      ? perf_batch_read(options_p) :
                                                   complete(options_p);
    }
    if (status != 0) {
        fputs("Try `ucx_perftest -h`, or `ucx_perftest --self`.\n", stderr);
    }
    return (status == 0) ? PERF_EXIT_OK : PERF_EXIT_USAGE;
}
