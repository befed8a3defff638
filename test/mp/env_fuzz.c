/* Halyard: sets variables of the environment to values that nobody expects, and runs a program with
 * them: it may work or refuse, but neither crash nor hang nor talk much.
 *
 *   env_fuzz PROGRAM [RUNS [SEED]]      (default 300 runs)
 *
 * Which variables there are is asked of the library itself. Each run sets one to three of them.
 * Exit status: 0, 1 where a run went wrong; then the variables are printed.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include <ucp/api/ucp.h>

#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NAMES_MAX     256
#define NAME_MAX_LEN  128
#define SETTINGS_MAX  3
#define VALUE_MAX     5000
#define LOG_LINES_MAX 10 /* of two processes */
#define RUN_LIMIT_S   30

static char names[NAMES_MAX][NAME_MAX_LEN];
static unsigned num_names;
static uint64_t seed;
static char scratch[] = "/tmp/env_fuzz-XXXXXX"; /* for log files of any name */

typedef struct {
    char name[NAME_MAX_LEN];
    char value[VALUE_MAX];
} setting_t;

static uint64_t next_random(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

/* NAME=value lines of the library's own listing. */
static int read_names(void)
{
    ucp_config_t *config;
    char line[1024];
    FILE *file = tmpfile();
    char *equals;

    if ((file == NULL) || (ucp_config_read(NULL, NULL, &config) != UCS_OK)) {
        return 0;
    }
    ucp_config_print(config, file, NULL, UCS_CONFIG_PRINT_CONFIG | UCS_CONFIG_PRINT_HIDDEN);
    ucp_config_release(config);
    rewind(file);
    while ((num_names < NAMES_MAX - 2) && (fgets(line, sizeof(line), file) != NULL)) {
        equals = strchr(line, '=');
        if ((strncmp(line, "UCX_", 4) == 0) && (equals != NULL) &&
            (equals - line < NAME_MAX_LEN)) {
            *equals = '\0';
            snprintf(names[num_names++], NAME_MAX_LEN, "%.*s", NAME_MAX_LEN - 1, line);
        }
    }
    fclose(file);
    snprintf(names[num_names++], NAME_MAX_LEN, "UCX_FAULT");
    snprintf(names[num_names++], NAME_MAX_LEN, "UCX_NOBODY_KNOWS_THIS");
    return num_names > 10;
}

static void make_value(char *value)
{
    static const char *const fixed[] = {
        "", " ", "y", "n", "yes", "try", "auto", "inf", "0", "1", "-1", "2", "3", "7", "16", "64",
        "100", "1000", "65536", "4294967295", "4294967296", "18446744073709551615",
        "99999999999999999999999999", "-9223372036854775809", "0x10", "1e308", "1e-308", "nan",
        "1.5", "0.25", "0.5000001", "-0.1", "1k", "1K", "64KB", "3G", "1T", "16EB", "1us", "5ms",
        "1MBs", "mm", "self", "cma", "^cma", "^mm,^cma", "mm,cma,self", "^", "^^mm", ",", ",,,",
        "mm,,cma", "all", "all,^mm", "none", "fault:mm", "delay:mm", "trace:fault:delay:mm",
        "fault:", ":", "memfd", "posix", "sysv,memfd", "memfd,memfd,memfd,memfd", "get_zcopy",
        "put_zcopy", "both", "am", "debug", "trace", "error,mm=trace", "warn,=,mm", "%s%s%s%n",
        "%p.%h", "/dev/full", "/dev/null", "/nonexistent/x/y", "/", "\xff\xfe\x01", "\t\n", "a=b",
        "'\"`$(reboot)", "mmap:1", "malloc:5", "*:3", "*:p0.5", "memfd_create:1+", "::::", "*:",
        "sendmsg:p0.1:seed3,accept4:2:ENOMEM"};
    unsigned i, length;

    switch (next_random() % 8) {
    case 0: /* any bytes */
        length = (unsigned)(next_random() % 40);
        for (i = 0; i < length; ++i) {
            value[i] = (char)((next_random() % 255) + 1);
        }
        value[length] = '\0';
        break;
    case 1: /* digits */
        length = 1 + (unsigned)(next_random() % 25);
        for (i = 0; i < length; ++i) {
            value[i] = "0123456789.-+eEkKmMgGx"[next_random() % 22];
        }
        value[length] = '\0';
        break;
    case 2: /* long */
        length = (unsigned)(next_random() % (VALUE_MAX - 1));
        memset(value, "a,:^9"[next_random() % 5], length);
        value[length] = '\0';
        break;
    default:
        snprintf(value, VALUE_MAX, "%s", fixed[next_random() % (sizeof(fixed) / sizeof(fixed[0]))]);
        break;
    }
}

static unsigned count_lines(int fd, int show)
{
    char buffer[4096];
    unsigned count = 0;
    ssize_t length;
    ssize_t i;

    lseek(fd, 0, SEEK_SET);
    while ((length = read(fd, buffer, sizeof(buffer))) > 0) {
        for (i = 0; i < length; ++i) {
            count += (buffer[i] == '\n');
        }
        if (show) {
            fwrite(buffer, 1, (size_t)length, stderr);
        }
    }
    return count;
}

/* Runs the program; -1 where it took too long. Its output goes to out_fd and err_fd. */
static int run_program(const char *program, const setting_t *settings, unsigned num_settings,
                       int out_fd, int err_fd)
{
    int status, waited_ms;
    unsigned i;
    pid_t pid = fork();

    if (pid == 0) {
        setpgid(0, 0);
        for (i = 0; i < num_settings; ++i) {
            setenv(settings[i].name, settings[i].value, 1);
        }
        if (chdir(scratch) != 0) {
            _exit(1);
        }
        dup2(out_fd, 1);
        dup2(err_fd, 2);
        execl(program, program, "1", (char *)NULL);
        _exit(127);
    }
    for (waited_ms = 0; waitpid(pid, &status, WNOHANG) == 0; ++waited_ms) {
        if (waited_ms > RUN_LIMIT_S * 1000) {
            kill(-pid, SIGKILL);
            waitpid(pid, &status, 0);
            return -1;
        }
        usleep(1000);
    }
    kill(-pid, SIGKILL); /* its child, if it is still there */
    return status;
}

static int is_verbose(const setting_t *settings, unsigned num_settings)
{
    unsigned i;

    for (i = 0; i < num_settings; ++i) {
        if ((strcmp(settings[i].name, "UCX_LOG_LEVEL") == 0) ||
            (strcmp(settings[i].name, "UCX_TLS") == 0 && strstr(settings[i].value, "trace:"))) {
            return 1; /* it was asked to talk */
        }
    }
    return 0;
}

/* Faults that the user asks for may lose anything but the process. */
static int has_faults(const setting_t *settings, unsigned num_settings)
{
    unsigned i;

    for (i = 0; i < num_settings; ++i) {
        if ((strcmp(settings[i].name, "UCX_FAULT") == 0) ||
            (strstr(settings[i].value, "fault:") != NULL)) {
            return 1;
        }
    }
    return 0;
}

static int run_once(const char *program, unsigned number)
{
    const unsigned num_settings = 1 + (unsigned)(next_random() % SETTINGS_MAX);
    static setting_t settings[SETTINGS_MAX];
    const char *what = NULL;
    FILE *out        = tmpfile(); /* both processes write at one shared position */
    FILE *err        = tmpfile();
    unsigned i, lines;
    int status;

    if ((out == NULL) || (err == NULL)) {
        perror("env_fuzz");
        return 0;
    }

    for (i = 0; i < num_settings; ++i) {
        snprintf(settings[i].name, NAME_MAX_LEN, "%s", names[next_random() % num_names]);
        make_value(settings[i].value);
    }
    status = run_program(program, settings, num_settings, fileno(out), fileno(err));
    lines  = count_lines(fileno(err), 0);
    if ((status == -1) || (WIFSIGNALED(status) && (WTERMSIG(status) == SIGALRM))) {
        what = has_faults(settings, num_settings) ? NULL : "it hung";
    } else if (WIFSIGNALED(status)) {
        what = strsignal(WTERMSIG(status));
    } else if ((WEXITSTATUS(status) == 1) && !has_faults(settings, num_settings)) {
        what = "a message was wrong or did not come";
    } else if (WEXITSTATUS(status) > 2) {
        what = "an odd exit status";
    } else if ((lines > LOG_LINES_MAX) && !is_verbose(settings, num_settings)) {
        what = "too many lines";
    }

    if (what != NULL) {
        fprintf(stderr, "env_fuzz: run %u: %s (status 0x%x, %u lines) with\n", number, what,
                (unsigned)status, lines);
        for (i = 0; i < num_settings; ++i) {
            fprintf(stderr, "    %s='%s'\n", settings[i].name, settings[i].value);
        }
        (void)count_lines(fileno(err), 1);
    }
    fclose(out);
    fclose(err);
    return what == NULL;
}

int main(int argc, char **argv)
{
    const unsigned runs = (argc > 2) ? (unsigned)atoi(argv[2]) : 300;
    unsigned failed     = 0;
    char command[64];
    unsigned i;

    seed = (argc > 3) ? strtoull(argv[3], NULL, 0) : 88172645463325252ull;
    if ((argc < 2) || !read_names()) {
        fprintf(stderr, "env_fuzz: no program, or the library does not list its variables\n");
        return 1;
    }
    if (mkdtemp(scratch) == NULL) {
        perror("env_fuzz");
        return 1;
    }
    printf("%u variables, %u runs, seed %llu\n", num_names, runs, (unsigned long long)seed);
    for (i = 0; i < runs; ++i) {
        failed += !run_once(argv[1], i);
    }
    snprintf(command, sizeof(command), "rm -rf %s", scratch);
    failed += (system(command) != 0);
    return failed > 0;
}
