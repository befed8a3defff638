/* Halyard: tests of contexts, workers and configuration: what is read from parameters, what is
 * answered, what is printed, and that no setting crashes.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <ucp/world.h>

#include <seed.h>
#include <ucs/config/global.h>
#include <ucs/config/names.h>
#include <ucs/debug/fault.h>

extern "C" {
#include <ucp/wire/address.h>
}

#include <algorithm>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace ucp_test;

namespace {

std::vector<std::string> split_lines(const std::string &text)
{
    std::vector<std::string> lines;
    size_t start = 0;

    for (size_t end; (end = text.find('\n', start)) != std::string::npos; start = end + 1) {
        lines.push_back(text.substr(start, end - start));
    }
    if (start < text.size()) {
        lines.push_back(text.substr(start));
    }
    return lines;
}

/* What a function says on stderr in a process of its own, where the environment is read anew. */
struct child_result {
    int exit_code; /* -1: died by a signal */
    std::vector<std::string> lines;
};

child_result in_child(const settings &env, const std::function<int()> &function)
{
    child_result result = {-1, {}};
    int fds[2];

    fflush(nullptr);
    if (pipe(fds) != 0) {
        ADD_FAILURE() << "pipe: " << strerror(errno);
        return result;
    }
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(fds[1], STDERR_FILENO);
        close(fds[0]);
        close(fds[1]);
        environment environment(env);
        ucs_global_opts_reload();
        const int code = function();
        fflush(nullptr);
        _exit(code);
    }
    close(fds[1]);

    std::string text;
    char buffer[4096];
    for (ssize_t length; (length = read(fds[0], buffer, sizeof(buffer))) > 0;) {
        text.append(buffer, length);
    }
    close(fds[0]);
    int status = 0;
    waitpid(pid, &status, 0);
    result.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    result.lines     = split_lines(text);
    return result;
}

/* Status of ucp_init, as a number that an exit code can carry. */
int try_init()
{
    ucp_context_h context;
    ucp_params_t params;
    params.field_mask         = UCP_PARAM_FIELD_FEATURES;
    params.features           = UCP_FEATURE_TAG;
    const ucs_status_t status = ucp_init(&params, nullptr, &context);
    if (status == UCS_OK) {
        ucp_cleanup(context);
    }
    return -status;
}

std::string all_lines(const child_result &result)
{
    std::string text;
    for (const std::string &line : result.lines) {
        text += line + "\n";
    }
    return text;
}

/* ---- init ---- */

/* A program that has forgotten them is told; UCX, too, goes on. */
TEST(context, init_without_features)
{
    log_catcher log;
    ucp_context_h context = nullptr;
    ucp_params_t params;
    memset(&params, 0xee, sizeof(params));
    for (const uint64_t mask : {uint64_t(0), uint64_t(UCP_PARAM_FIELD_FEATURES)}) {
        params.field_mask = mask;
        params.features   = (mask == 0) ? UCP_FEATURE_TAG : 0;
        ASSERT_EQ(UCS_OK, ucp_init(&params, nullptr, &context));
        EXPECT_EQ(1u, log.take().size());
        ucp_cleanup(context);
    }
}

/* Feature bits and mask bits of a later version do no harm. */
TEST(context, bits_of_the_future)
{
    log_catcher log;
    ucp_context_h context;
    ucp_params_t params;
    memset(&params, 0xee, sizeof(params));
    params.field_mask = UCP_PARAM_FIELD_FEATURES | (1ull << 40) | (1ull << 63);
    params.features   = UCP_FEATURE_TAG | (1ull << 50);
    ASSERT_EQ(UCS_OK, ucp_init(&params, nullptr, &context));

    ucp_worker_params_t worker_params;
    ucp_worker_h worker;
    memset(&worker_params, 0x20, sizeof(worker_params));
    worker_params.field_mask = UCP_WORKER_PARAM_FIELD_FLAGS | (1ull << 40);
    ASSERT_EQ(UCS_OK, ucp_worker_create(context, &worker_params, &worker));
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
}

TEST(context, versions)
{
    unsigned major, minor, release;
    ucp_get_version(&major, &minor, &release);
    EXPECT_EQ(1u, major);
    EXPECT_EQ(23u, minor);
    EXPECT_EQ(std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release),
              ucp_get_version_string());

    /* never refused, only warned of */
    static const struct {
        unsigned major, minor;
        size_t warnings;
    } rows[] = {{1, 13, 0}, {1, 23, 0}, {1, 39, 1}, {2, 13, 1}, {0, 0, 1}};
    for (const auto &row : rows) {
        log_catcher log;
        ucp_context_h context;
        ucp_params_t params;
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features   = UCP_FEATURE_TAG;
        ASSERT_EQ(UCS_OK, ucp_init_version(row.major, row.minor, &params, nullptr, &context));
        EXPECT_EQ(row.warnings, log.take().size()) << row.major << "." << row.minor;
        ucp_cleanup(context);
    }
}

TEST(context, queries)
{
    log_catcher log;
    context context;
    ucp_context_attr_t attr;

    for (uint64_t mask = 0; mask < 32; ++mask) {
        memset(&attr, 0xee, sizeof(attr));
        attr.field_mask = mask;
        ASSERT_EQ(UCS_OK, ucp_context_query(context.handle(), &attr));
        EXPECT_EQ(mask, attr.field_mask);
        EXPECT_EQ((mask & UCP_ATTR_FIELD_REQUEST_SIZE) != 0, attr.request_size < 1024);
        int thread_mode; /* no value of the enum while it is not asked for */
        memcpy(&thread_mode, &attr.thread_mode, sizeof(thread_mode));
        EXPECT_EQ((mask & UCP_ATTR_FIELD_THREAD_MODE) != 0, thread_mode == UCS_THREAD_MODE_MULTI);
        EXPECT_EQ((mask & UCP_ATTR_FIELD_NAME) == 0, attr.name[0] == '\xee');
        if (mask & UCP_ATTR_FIELD_MEMORY_TYPES) {
            EXPECT_TRUE(attr.memory_types & (1u << UCS_MEMORY_TYPE_HOST));
        }
    }

    ucp_lib_attr_t lib;
    lib.field_mask = UCP_LIB_ATTR_FIELD_MAX_THREAD_LEVEL;
    ASSERT_EQ(UCS_OK, ucp_lib_query(&lib));
    EXPECT_EQ(UCS_THREAD_MODE_MULTI, lib.max_thread_level);
    EXPECT_EQ(1u, lib.field_mask);
}

TEST(context, worker_queries)
{
    log_catcher log;
    context context;
    for (ucs_thread_mode_t mode :
         {UCS_THREAD_MODE_SINGLE, UCS_THREAD_MODE_SERIALIZED, UCS_THREAD_MODE_MULTI}) {
        ucp_worker_params_t params;
        ucp_worker_h worker;
        memset(&params, 0xee, sizeof(params));
        params.field_mask  = UCP_WORKER_PARAM_FIELD_THREAD_MODE | UCP_WORKER_PARAM_FIELD_NAME;
        params.thread_mode = mode;
        params.name        = "worker of a test with a name that does not fit into an attribute";
        ASSERT_EQ(UCS_OK, ucp_worker_create(context.handle(), &params, &worker));

        ucp_worker_attr_t attr;
        memset(&attr, 0xee, sizeof(attr));
        attr.field_mask = UCP_WORKER_ATTR_FIELD_THREAD_MODE | UCP_WORKER_ATTR_FIELD_MAX_AM_HEADER |
                          UCP_WORKER_ATTR_FIELD_NAME | UCP_WORKER_ATTR_FIELD_MAX_INFO_STRING;
        const uint64_t mask = attr.field_mask;
        ASSERT_EQ(UCS_OK, ucp_worker_query(worker, &attr));
        EXPECT_EQ(mask, attr.field_mask);
        EXPECT_EQ(mode, attr.thread_mode);
        EXPECT_GE(attr.max_am_header, 2048u);
        EXPECT_LE(attr.max_am_header, 65536u) << "a client keeps it in an int as its eager size";
        EXPECT_EQ(31u, strlen(attr.name));
        EXPECT_GE(attr.max_debug_string, 64u);

        /* UCX_NET_ADDRESS=n: none leads from other nodes */
        ucp_worker_attr_t full, net;
        full.field_mask   = UCP_WORKER_ATTR_FIELD_ADDRESS;
        net.field_mask    = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS;
        net.address_flags = UCP_WORKER_ADDRESS_FLAG_NET_ONLY;
        ASSERT_EQ(UCS_OK, ucp_worker_query(worker, &full));
        ASSERT_EQ(UCS_OK, ucp_worker_query(worker, &net));
        EXPECT_LE(full.address_length, 64u);
        ASSERT_EQ(full.address_length, net.address_length);
        EXPECT_EQ(0, memcmp(full.address, net.address, net.address_length));

        ucp_worker_address_attr_t uid[2];
        uid[0].field_mask = uid[1].field_mask = UCP_WORKER_ADDRESS_ATTR_FIELD_UID;
        ASSERT_EQ(UCS_OK, ucp_worker_address_query(full.address, &uid[0]));
        ASSERT_EQ(UCS_OK, ucp_worker_address_query(net.address, &uid[1]));
        EXPECT_EQ(uid[0].worker_uid, uid[1].worker_uid);
        EXPECT_EQ(ucp_test_worker_id(worker), uid[0].worker_uid);
        ucp_worker_release_address(worker, full.address);
        ucp_worker_release_address(worker, net.address);
        ucp_worker_destroy(worker);
    }
}

/* The transports, as they are named on the wire, in an address for other nodes, for which Open MPI
 * asks. */
std::vector<unsigned> transports_in_net_address(const settings &env)
{
    environment environment(env);
    context context;
    worker worker(context);
    std::vector<unsigned> ids;
    ucp_address_info_t info;
    ucp_worker_attr_t attr;

    attr.field_mask    = UCP_WORKER_ATTR_FIELD_ADDRESS | UCP_WORKER_ATTR_FIELD_ADDRESS_FLAGS;
    attr.address_flags = UCP_WORKER_ADDRESS_FLAG_NET_ONLY;
    EXPECT_EQ(UCS_OK, ucp_worker_query(worker.handle(), &attr));
    EXPECT_EQ(UCS_OK, ucp_address_unpack(attr.address, attr.address_length, &info));
    for (unsigned i = 0; i < info.num_entries; ++i) {
        ids.push_back(info.entries[i].wire_id);
    }
    ucp_worker_release_address(worker.handle(), attr.address);
    return ids;
}

/* An address for other nodes says nothing of shared memory, and loads no network's library in a job
 * that is on one node: that takes 0.3 s of each MPI_Init. */
TEST(context, an_address_for_other_nodes)
{
    const settings here = {{"UCX_NET_ADDRESS", "auto"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                           {"OMPI_COMM_WORLD_SIZE", "2"}};
    const settings elsewhere = {{"UCX_NET_ADDRESS", "auto"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                {"OMPI_COMM_WORLD_SIZE", "4"}};
    const auto local  = transports_in_net_address(here);
    const auto remote = transports_in_net_address(elsewhere);

    EXPECT_EQ(1, std::count(local.begin(), local.end(), ucp_address_wire_id("mm")));
    EXPECT_EQ(0, std::count(local.begin(), local.end(), ucp_address_wire_id("ofi")));
    EXPECT_EQ(std::vector<unsigned>(is_present("ofi"), ucp_address_wire_id("ofi")), remote);
}

/* Of thousands of processes each keeps one of each: beside the provider's own, little is added. */
TEST(context, an_address_over_a_network_is_short)
{
    constexpr size_t OF_PROVIDER = 28, OURS = 64; /* sockaddr_in6 */
    size_t sizes[2];
    if (!is_present("ofi") || (getenv("UCX_OFI_PROVIDER") != nullptr)) {
        GTEST_SKIP() << "no libfabric, or a provider of other addresses";
    }
    for (bool is_net : {false, true}) {
        environment environment(settings{{"UCX_NET_ADDRESS", is_net ? "y" : "n"}});
        context context;
        sizes[is_net] = worker(context).address().size();
    }
    EXPECT_LT(sizes[0], sizes[1]) << "there is no network in it";
    EXPECT_GE(OF_PROVIDER + OURS, sizes[1] - sizes[0]);
}

/* An address that is never released, as MPICH leaves it: nothing worse than its memory is lost. */
TEST(context, several_in_one_process)
{
    log_catcher log;
    context first, second;
    worker a(first), b(second), c(second);
    ucp_ep_h ep    = a.connect(b);
    uint64_t value = 6, got = 0;
    const ucp_request_param_t param = send_param(nullptr);
    void *sent                      = ucp_tag_send_nbx(ep, &value, 8, 1, &param);
    void *received                  = ucp_tag_recv_nbx(b.handle(), &got, 8, 1, ~0ull, &param);
    while (!ucp_request_is_completed(received) ||
           (UCS_PTR_IS_PTR(sent) && !ucp_request_is_completed(sent))) {
        a.progress();
        b.progress();
        EXPECT_EQ(0u, c.progress()) << "it is not its message";
    }
    EXPECT_EQ(6u, got);
    ucp_request_free(received);
    if (UCS_PTR_IS_PTR(sent)) {
        ucp_request_free(sent);
    }
}

TEST(context, many_workers_in_one_process)
{
    log_catcher log;
    context context;
    std::vector<std::unique_ptr<worker>> workers;
    for (int i = 0; i < 64; ++i) {
        workers.push_back(std::make_unique<worker>(context));
    }
    std::vector<void *> requests;
    std::vector<uint64_t> values(64), got(64);
    const ucp_request_param_t param = send_param(nullptr);
    for (int i = 0; i < 64; ++i) {
        values[i]   = i;
        ucp_ep_h ep = workers[i]->connect(*workers[(i * 7 + 3) % 64]);
        requests.push_back(
            ucp_tag_recv_nbx(workers[(i * 7 + 3) % 64]->handle(), &got[i], 8, 1, ~0ull, &param));
        requests.push_back(ucp_tag_send_nbx(ep, &values[i], 8, 1, &param));
    }
    for (void *request : requests) {
        for (int round = 0; UCS_PTR_IS_PTR(request) && !ucp_request_is_completed(request);
             ++round) {
            ASSERT_LT(round, 1000000);
            for (const auto &each : workers) {
                each->progress();
            }
        }
        if (UCS_PTR_IS_PTR(request)) {
            EXPECT_EQ(UCS_OK, ucp_request_check_status(request));
            ucp_request_free(request);
        }
    }
    EXPECT_EQ(values, got);
}

/* Open MPI asks for the context's text and forgets it all: nothing may be left behind. */
std::vector<std::string> open_descriptors()
{
    std::vector<std::string> list;
    DIR *directory = opendir("/proc/self/fd");
    while (struct dirent *entry = readdir(directory)) {
        char target[256]       = {};
        const std::string path = std::string("/proc/self/fd/") + entry->d_name;
        if (readlink(path.c_str(), target, sizeof(target) - 1) > 0) {
            if (strncmp(target, "/proc/", 6) != 0) {
                list.push_back(std::string(entry->d_name) + " " + target);
            }
        }
    }
    closedir(directory);
    std::sort(list.begin(), list.end());
    return list;
}

size_t num_threads()
{
    size_t count   = 0;
    DIR *directory = opendir("/proc/self/task");
    while (struct dirent *entry = readdir(directory)) {
        count += (entry->d_name[0] != '.');
    }
    closedir(directory);
    return count;
}

TEST(context, leaves_nothing_behind)
{
    log_catcher log;
    const auto before       = open_descriptors();
    const size_t had_before = num_threads();
    for (int i = 0; i < 20; ++i) {
        context context;
        FILE *null = fopen("/dev/null", "w");
        ucp_context_print_info(context.handle(), null);
        fclose(null);
        if (i & 1) {
            worker first(context), second(context);
            first.connect(second);
            first.connect(first);
            int fd;
            EXPECT_EQ(UCS_OK, ucp_worker_get_efd(first.handle(), &fd));
        }
    }
    EXPECT_EQ(before, open_descriptors());
    EXPECT_EQ(had_before, num_threads());
}

/* ---- printing ---- */

/* Open MPI reads these lines by sscanf. */
TEST(context, print_info_names_each_resource)
{
    log_catcher log;
    context context;
    std::vector<std::string> names;
    for (const std::string &line : split_lines(
             printed([&](FILE *stream) { ucp_context_print_info(context.handle(), stream); }))) {
        char name[64] = "";
        if (sscanf(line.c_str(), "# resource %*d : md %*d dev %*d flags -- %63s", name) == 1) {
            ASSERT_NE(nullptr, strchr(name, '/')) << line;
            names.push_back(name);
        }
        EXPECT_LT(line.size(), 128u);
    }
    ASSERT_GE(names.size(), 2u);
    EXPECT_TRUE(std::any_of(names.begin(), names.end(),
                            [](const std::string &name) { return name.rfind("mm/", 0) == 0; }));
}

TEST(ucp_config, prints_key_and_value_only)
{
    log_catcher log;
    environment environment({{"UCX_TLS", "self,mm"}, {"UCX_RNDV_THRESH", "5000"}});
    ucp_config_t *config;
    ASSERT_EQ(UCS_OK, ucp_config_read(nullptr, nullptr, &config));
    const auto lines = split_lines(printed(
        [&](FILE *stream) { ucp_config_print(config, stream, nullptr, UCS_CONFIG_PRINT_CONFIG); }));
    ASSERT_GE(lines.size(), 5u);
    for (const std::string &line : lines) {
        EXPECT_EQ(0u, line.rfind("UCX_", 0)) << line;
        EXPECT_NE(std::string::npos, line.find('=')) << line;
    }
    EXPECT_EQ(1, std::count(lines.begin(), lines.end(), "UCX_TLS=self,mm"));
    EXPECT_EQ(1, std::count(lines.begin(), lines.end(), "UCX_RNDV_THRESH=5000"));

    const std::string full = printed([&](FILE *stream) {
        ucp_config_print(config, stream, "the title",
                         static_cast<ucs_config_print_flags_t>(
                             UCS_CONFIG_PRINT_CONFIG | UCS_CONFIG_PRINT_HEADER |
                             UCS_CONFIG_PRINT_DOC | UCS_CONFIG_PRINT_HIDDEN));
    });
    EXPECT_NE(std::string::npos, full.find("the title"));
    EXPECT_GT(full.size(), printed([&](FILE *stream) {
                               ucp_config_print(config, stream, nullptr, UCS_CONFIG_PRINT_CONFIG);
                           }).size());
    ucp_config_release(config);
}

/* ---- reading ---- */

std::string value_of(const ucp_config_t *config, const std::string &key)
{
    for (const std::string &line : split_lines(printed([&](FILE *stream) {
             ucp_config_print(config, stream, nullptr, UCS_CONFIG_PRINT_CONFIG);
         }))) {
        if (line.rfind("UCX_" + key + "=", 0) == 0) {
            return line.substr(key.size() + 5);
        }
    }
    return "(none)";
}

TEST(ucp_config, the_prefix_of_the_application_goes_first)
{
    log_catcher log;
    environment environment({{"UCX_TLS", "self"},
                             {"MPI_UCX_TLS", "mm"},
                             {"UCX_RNDV_THRESH", "100"},
                             {"OSHMEM_UCX_RNDV_THRESH", "200"},
                             {"MPI_UCX_MM_FIFO_SIZE", "512"}});
    static const struct {
        const char *prefix, *tls, *threshold, *fifo;
    } rows[] = {{nullptr, "self", "100", "256"},
                {"MPI", "mm", "100", "512"},
                {"OSHMEM", "self", "200", "256"},
                {"Charm++", "self", "100", "256"},
                {"", "self", "100", "256"}};
    for (const auto &row : rows) {
        ucp_config_t *config;
        ASSERT_EQ(UCS_OK, ucp_config_read(row.prefix, nullptr, &config));
        EXPECT_EQ(row.tls, value_of(config, "TLS"));
        EXPECT_EQ(row.threshold, value_of(config, "RNDV_THRESH"));
        EXPECT_EQ(row.fifo, value_of(config, "MM_FIFO_SIZE"));
        ucp_config_release(config);
    }
}

TEST(ucp_config, a_file_name_is_accepted)
{
    log_catcher log;
    ucp_config_t *config;
    ASSERT_EQ(UCS_OK, ucp_config_read(nullptr, "/nonexistent/ucx.conf", &config));
    ucp_config_release(config);
}

TEST(ucp_config, released_before_or_after_the_context)
{
    log_catcher log;
    for (bool before : {true, false}) {
        ucp_config_t *config;
        ucp_context_h context;
        ucp_params_t params;
        params.field_mask = UCP_PARAM_FIELD_FEATURES;
        params.features   = UCP_FEATURE_TAG;
        ASSERT_EQ(UCS_OK, ucp_config_read("MPI", nullptr, &config));
        ASSERT_EQ(UCS_OK, ucp_config_modify(config, "TLS", "mm,cma"));
        ASSERT_EQ(UCS_OK, ucp_init(&params, config, &context));
        if (before) {
            ucp_config_release(config);
        }
        ucp_worker_params_t worker_params;
        ucp_worker_h worker;
        worker_params.field_mask = 0;
        ASSERT_EQ(UCS_OK, ucp_worker_create(context, &worker_params, &worker));
        ucp_worker_destroy(worker);
        ucp_cleanup(context);
        if (!before) {
            ucp_config_release(config);
        }
    }
}

/* Keys that clients set and give up over if they are refused. */
TEST(ucp_config, modify_takes_every_key_of_clients)
{
    log_catcher log;
    static const std::pair<const char *, const char *> keys[] = {
        {"TLS", "mm,self"},
        {"NET_DEVICES", "all"},
        {"NET_DEVICES", "mlx5_0:1,eth0"},
        {"RNDV_THRESH", "8192"},
        {"RNDV_THRESH", "inf"},
        {"RNDV_SCHEME", "get_zcopy"},
        {"RNDV_SCHEME", "put_zcopy"},
        {"RNDV_SCHEME", "auto"},
        {"RNDV_SCHEME", "am"},
        {"RNDV_SCHEME", "get_ppln"},
        {"RNDV_SCHEME", "rkey_ptr"},
        {"MEMTYPE_REG_WHOLE_ALLOC_TYPES", "cuda"},
        {"HANDLE_ERRORS", "none"},
        {"LOG_LEVEL", "warn"},
        {"CM_REUSEADDR", "y"},
        {"MEMTYPE_COPY_ENABLE", "n"},
        {"ZCOPY_THRESH", "0"},
        {"MAX_RMA_RAILS", "2"},
        {"IB_PCI_RELAXED_ORDERING", "try"},
        {"RC_FENCE", "auto"},
        {"RC_GDA_NUM_CHANNELS", "4"},
        {"MAX_HCA_PER_GPU", "1"},
        {"RNDV_PIPELINE_ERROR_HANDLING", "y"},
        {"ADDRESS_VERSION", "v2"},
        {"MAX_COMPONENT_MDS", "32"},
        {"DC_MLX5_TX_POLICY", "rand"},
        {"MEM_EVENTS", "no"},
        {"MEM_MALLOC_HOOKS", "n"},
        {"SHM_DEVICES", "all"},
        {"SOCKADDR_TLS_PRIORITY", "tcp"},
        {"PROTO_ENABLE", "y"},
        {"UNIFIED_MODE", "y"},
        {"MM_FIFO_SIZE", "256"},
        {"POSIX_FIFO_SIZE", "256"},
    };
    ucp_config_t *config;
    ASSERT_EQ(UCS_OK, ucp_config_read(nullptr, nullptr, &config));
    for (const auto &[key, value] : keys) {
        EXPECT_EQ(UCS_OK, ucp_config_modify(config, key, value)) << key << "=" << value;
    }
    EXPECT_EQ("mm,self", value_of(config, "TLS"));
    EXPECT_EQ("inf", value_of(config, "RNDV_THRESH"));
    EXPECT_EQ("256", value_of(config, "MM_FIFO_SIZE"));

    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucp_config_modify(config, "NO_SUCH_KEY", "1"));
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucp_config_modify(config, "", ""));
    log.take();

    /* a wrong value changes nothing */
    EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucp_config_modify(config, "RNDV_THRESH", "many"));
    EXPECT_EQ(1u, log.take().size());
    EXPECT_EQ("inf", value_of(config, "RNDV_THRESH"));
    ucp_config_release(config);
}

/* ---- settings that are wrong ---- */

TEST(ucp_config, an_unknown_variable_earns_one_line)
{
    const child_result result = in_child({{"UCX_RNDV_TRESH", "1"}}, []() {
        try_init();
        return try_init();
    });
    EXPECT_EQ(0, result.exit_code);
    ASSERT_EQ(1u, result.lines.size()) << all_lines(result);
    EXPECT_NE(std::string::npos, result.lines[0].find("UCX_RNDV_TRESH"));
    EXPECT_NE(std::string::npos, result.lines[0].find("UCX_RNDV_THRESH")) << "the nearest name";
}

TEST(ucp_config, variables_of_others_earn_none)
{
    const child_result result = in_child({{"UCX_DC_MLX5_TX_POLICY", "rand"},
                                          {"UCX_MEM_EVENTS", "no"},
                                          {"UCX_MEM_MALLOC_HOOKS", "n"},
                                          {"UCX_NET_DEVICES", "eth0"},
                                          {"UCX_HOME", "/opt/ucx"},
                                          {"MPI_UCX_IB_GID_INDEX", "3"}},
                                         try_init);
    EXPECT_EQ(0, result.exit_code);
    EXPECT_EQ(0u, result.lines.size()) << all_lines(result);
}

TEST(ucp_config, warnings_can_be_switched_off)
{
    const child_result result =
        in_child({{"UCX_RNDV_TRESH", "1"}, {"UCX_WARN_UNUSED_ENV_VARS", "n"}}, try_init);
    EXPECT_EQ(0, result.exit_code);
    EXPECT_EQ(0u, result.lines.size()) << all_lines(result);
}

/* An option of a transport is no less wrong than one of the library's, though others might do. */
TEST(ucp_config, wrong_values_of_transports_end_ucp_init)
{
    static const struct {
        const char *name, *value, *told;
    } rows[] = {{"UCX_MM_BACKING", "foo", ": memfd, posix, sysv"},
                {"UCX_POSIX_BACKING", "", ": memfd, posix, sysv"},
                {"UCX_MM_BACKING", "memfd,,sysv", ": memfd, posix, sysv"},
                {"UCX_MM_BACKING", "memfd,poxix", "did you mean 'posix'?"},
#ifdef HAVE_OFI
                {"UCX_TCP_AF_PRIO", "inet,ipv6", ": inet, inet6"},
#endif
                {"UCX_SELF_SEG_SIZE", "-1", "UCX_SELF_SEG_SIZE"},
                {"UCX_HOOK_SEED", "x", "UCX_HOOK_SEED"}};
    for (const auto &row : rows) {
        const child_result result =
            in_child({{"UCX_TLS", "trace:mm,ofi,self"}, {row.name, row.value}}, try_init);
        EXPECT_EQ(-UCS_ERR_INVALID_PARAM, result.exit_code) << row.name << all_lines(result);
        ASSERT_EQ(1u, result.lines.size()) << all_lines(result);
        EXPECT_NE(std::string::npos, result.lines[0].find(row.name)) << result.lines[0];
        EXPECT_NE(std::string::npos, result.lines[0].find(row.told)) << result.lines[0];
    }
}

TEST(ucp_config, a_wrong_value_earns_one_line)
{
    static const struct {
        const char *name, *value, *hint;
    } rows[] = {{"UCX_RNDV_SCHEME", "get_zcop", "get_zcopy"},
                {"UCX_RNDV_THRESH", "much", "UCX_RNDV_THRESH"},
                {"UCX_RNDV_THRESH", "intra:64k,16k", "intra:64K,inter:16K"},
                {"UCX_RNDV_THRESH", "intra:64k,inter:", "intra:64K,inter:16K"},
                {"UCX_RNDV_THRESH", "node:64k", "intra:64K,inter:16K"},
                {"UCX_RNDV_THRESH", "intra:64k,", "intra:64K,inter:16K"},
                {"UCX_MM_FIFO_SIZE", "100", "power of two; used instead: 128"},
                {"UCX_MM_FIFO_SIZE", "7", "power of two; used instead: 16"},
                {"UCX_MM_FIFO_RELEASE_FACTOR", "0.75", "; used instead: 0.5"},
                {"UCX_SYSV_SEG_SIZE", "64", "; used instead: 512"},
                {"UCX_PROTO_INFO", "perhaps", "y, n, used"},
                {"UCX_SELF_SEG_SIZE", "-1", "UCX_SELF_SEG_SIZE"}};
    for (const auto &row : rows) {
        const child_result result = in_child({{row.name, row.value}}, try_init);
        EXPECT_NE(-1, result.exit_code) << row.name;
        ASSERT_EQ(1u, result.lines.size()) << row.name << "\n" << all_lines(result);
        EXPECT_NE(std::string::npos, result.lines[0].find(row.name)) << result.lines[0];
        EXPECT_NE(std::string::npos, result.lines[0].find(row.value)) << result.lines[0];
        EXPECT_NE(std::string::npos, result.lines[0].find(row.hint)) << result.lines[0];
    }
}

/* Status of a context whose two workers have looked for networks. */
int try_networks()
{
    ucp_context_h context;
    ucp_params_t params;
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features   = UCP_FEATURE_TAG;
    if (ucp_init(&params, nullptr, &context) != UCS_OK) {
        return 1;
    }
    for (unsigned i = 0; i < 2; ++i) {
        ucp_worker_h worker;
        ucp_worker_params_t worker_params;
        ucp_address_t *address;
        size_t length;
        worker_params.field_mask = 0;
        if ((ucp_worker_create(context, &worker_params, &worker) != UCS_OK) ||
            (ucp_worker_get_address(worker, &address, &length) != UCS_OK)) {
            return 2;
        }
        ucp_worker_release_address(worker, address);
        ucp_worker_destroy(worker);
    }
    ucp_cleanup(context);
    return 0;
}

TEST(ucp_config, networks_that_do_not_exist_are_told_once)
{
    static const struct {
        const char *name, *value, *told; /* "": nothing */
    } rows[] = {{"UCX_NET_DEVICES", "nonesuch0", "'nonesuch0'; there are: "},
                {"UCX_OFI_DEVICES", "*,nonesuch0:1", "'nonesuch0:1'; there are: "},
                {"UCX_OFI_PROVIDER", "nonesuch", "'nonesuch'; there are: "},
                {"UCX_TCP_AF_PRIO", "INET6,inet", ""},
                {"UCX_NET_DEVICES", "^nonesuch0", ""},
                {"UCX_NET_DEVICES", "*", ""}};
    if (!is_present("ofi")) {
        GTEST_SKIP() << "no libfabric";
    }
    for (const auto &row : rows) {
        const child_result result = in_child({{"UCX_TLS", "self,ofi"}, {"UCX_NET_ADDRESS", "y"},
                                              {row.name, row.value}}, try_networks);
        EXPECT_EQ(0, result.exit_code) << row.value << all_lines(result);
        ASSERT_EQ((row.told[0] != '\0') ? 1u : 0u, result.lines.size()) << all_lines(result);
        EXPECT_NE(std::string::npos, all_lines(result).find(row.told)) << all_lines(result);
    }
}

/* Which one is used, and why not the others, for whoever asks. */
TEST(ucp_config, the_network_in_use_is_told_at_level_info)
{
    if (!is_present("ofi")) {
        GTEST_SKIP() << "no libfabric";
    }
    const child_result result =
        in_child({{"UCX_TLS", "self,ofi"}, {"UCX_NET_ADDRESS", "y"}, {"UCX_LOG_LEVEL", "info"},
                  {"UCX_OFI_PROVIDER", "^udp;ofi_rxd"}}, try_networks);
    const std::string text = all_lines(result);
    EXPECT_EQ(0, result.exit_code) << text;
    EXPECT_NE(std::string::npos, text.find("INFO network: ")) << text;
    EXPECT_NE(std::string::npos, text.find("switched off by UCX_OFI_PROVIDER")) << text;
}

/* What UCX takes beside what our own users know. */
TEST(ucp_config, values_of_users_of_ucx)
{
    static const struct {
        const char *name, *value, *shown;
    } rows[] = {{"RNDV_THRESH", "intra:64k,inter:16k", "intra:64K,inter:16K"},
                {"RNDV_THRESH", "inter:inf,intra:auto", "intra:auto,inter:inf"},
                {"RNDV_THRESH", "intra:0", "intra:0,inter:auto"},
                {"RNDV_THRESH", "inter:1m", "intra:auto,inter:1M"},
                {"RNDV_THRESH", "8k,inter:4k", "intra:8K,inter:4K"},
                {"RNDV_THRESH", "intra:8k,inter:8192", "8K"},
                {"PROTO_INFO", "used", "y"},
                {"PROTO_INFO", "*tag*gpu*", "y"},
                {"PROTO_INFO", "n", "n"},
                {"PROTO_INFO", "yes", "y"},
                {"TLS", "\\mm,\\self", "mm,self"},
                {"MM_FIFO_MAX_POLL", "auto", "16"},
                {"SYSV_FIFO_MAX_POLL", "inf", "65536"},
                {"POSIX_SEG_SIZE", "inf", "inf"},
                {"SM_BW", "2GBs", "2GBs"},
                {"MM_BW", "auto", "5.5GBs"}};
    log_catcher log;
    ucp_config_t *config;
    ASSERT_EQ(UCS_OK, ucp_config_read(nullptr, nullptr, &config));
    for (const auto &row : rows) {
        EXPECT_EQ(UCS_OK, ucp_config_modify(config, row.name, row.value)) << row.value;
        std::string name = row.name;
        for (const std::string other : {"POSIX_", "SYSV_", "SM_"}) {
            name = (name.find(other) == 0) ? "MM_" + name.substr(other.size()) : name;
        }
        EXPECT_EQ(row.shown, value_of(config, name)) << row.value;
        EXPECT_TRUE(log.take().empty()) << row.value;
    }
    ucp_config_release(config);
}

TEST(ucp_config, lists_that_leave_no_transport)
{
    for (const char *tls :
         {"rc,ud", "cuda_ipc", "nonsense", "^self,shm,net,cuda_copy,cuda_ipc", "fault:nonsense",
          "mmm"}) {
        if ((strcmp(tls, "cuda_ipc") == 0) && is_present(tls)) {
            continue;
        }
        const child_result result = in_child({{"UCX_TLS", tls}}, try_init);
        EXPECT_EQ(-UCS_ERR_NO_DEVICE, result.exit_code) << tls;
        ASSERT_EQ(1u, result.lines.size()) << tls << "\n" << all_lines(result);
        EXPECT_NE(std::string::npos, result.lines[0].find("TLS")) << result.lines[0];
    }
}

/* A slip is told, with what was probably meant; names of other libraries' transports are not. */
TEST(ucp_config, slips_in_lists_of_transports)
{
    static const struct {
        const char *tls, *slip, *meant; /* NULL: nothing is said */
    } rows[] = {{"mm,self,cmaa", "'cmaa'", "'cma'"},
                {"^cmma", "'cmma'", "'cma'"},
                {"slef,mm", "'slef'", "'self'"},
                {"rc_x,ud,dc,ib,sm,self,tcp,rocm,xpmem,knem,gdr_copy", nullptr, nullptr}};
    for (const auto &row : rows) {
        const child_result result = in_child({{"UCX_TLS", row.tls}}, try_init);
        EXPECT_EQ(0, result.exit_code) << row.tls;
        ASSERT_EQ((row.slip != nullptr) ? 1u : 0u, result.lines.size()) << all_lines(result);
        if (row.slip != nullptr) {
            EXPECT_NE(std::string::npos, result.lines[0].find(row.slip)) << result.lines[0];
            EXPECT_NE(std::string::npos, result.lines[0].find(row.meant)) << result.lines[0];
        }
    }
}

/* What it says to make an endpoint to another worker. */
ucs_status_t connected(worker &from, worker &to)
{
    const bytes address = to.address();
    ucp_ep_params_t params;
    ucp_ep_h ep       = nullptr;
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address    = reinterpret_cast<const ucp_address_t *>(address.data());
    return ucp_ep_create(from.handle(), &params, &ep);
}

/* Enough for the process itself, but not for another: the endpoint says so, in one line. */
TEST(ucp_config, lists_that_leave_no_way_to_others)
{
    for (const char *tls : {"self", "cma", "self,cma", "^mm,net", "rc,self"}) {
        const child_result result = in_child({{"UCX_TLS", tls}}, []() {
            context context;
            if (context.handle() == nullptr) {
                return 100;
            }
            worker first(context), second(context);
            return -connected(first, second);
        });
        EXPECT_EQ(-UCS_ERR_UNREACHABLE, result.exit_code) << tls;
        EXPECT_EQ(1u, result.lines.size()) << tls << "\n" << all_lines(result);
    }
}

/* Clients go through the devices that they find and try each: one that carries nothing is no reason
 * to end. */
TEST(ucp_config, devices_that_leave_no_way_to_others)
{
    if (!is_present("ofi")) {
        GTEST_SKIP() << "no libfabric";
    }
    const child_result result = in_child({{"UCX_TLS", "self,ofi"}, {"UCX_NET_ADDRESS", "y"},
                                          {"UCX_NET_DEVICES", "nonesuch0"}}, []() {
        context context;
        if (context.handle() == nullptr) {
            return 100;
        }
        worker first(context), second(context);
        first.connect(first); /* that is the process itself */
        return -connected(first, second);
    });
    EXPECT_EQ(-UCS_ERR_UNREACHABLE, result.exit_code) << all_lines(result);
    ASSERT_EQ(2u, result.lines.size()) << all_lines(result);
    EXPECT_NE(std::string::npos, result.lines[0].find("'nonesuch0'; there are: "));
}

TEST(ucp_config, names_that_users_of_ucx_write)
{
    static const struct {
        const char *tls, *expected;
    } rows[] = {
        {"all", "self mm cma ofi"}, {"shm", "self mm cma"},   {"sm", "self mm cma"},
        {"sm,self", "self mm cma"}, {"posix", "self mm"},     {"posix,sysv,cma", "self mm cma"},
        {"mm", "self mm"},          {"self", "self"},         {"^cma", "self mm ofi"},
        {"^posix", "self mm cma ofi"}, {"^sysv", "self mm cma ofi"},
        {"^posix,sysv", "self cma ofi"}, {"^sysv,mm", "self cma ofi"},
        {"rc,sm", "self mm cma"},   {"tcp,mm,self", "self mm ofi"},
        {"memfd", "self mm"},       {"loopback", "self"},     {"^shm", "self ofi"},
        {"net,self", "self ofi"},   {"ofi,sm", "self mm cma ofi"}};
    for (const auto &row : rows) {
        log_catcher log;
        environment environment(settings{{"UCX_TLS", row.tls}});
        context context;
        std::string names;
        for (const std::string &line : split_lines(printed(
                 [&](FILE *stream) { ucp_context_print_info(context.handle(), stream); }))) {
            char name[64] = "";
            if ((sscanf(line.c_str(), "# resource %*d : md %*d dev %*d flags -- %63[^/]", name) ==
                 1) && (strncmp(name, "cuda", 4) != 0)) {
                names += (names.empty() ? "" : " ") + std::string(name);
            }
        }
        std::string expected = row.expected;
        if (!is_present("ofi") && (expected.size() > 4) &&
            (expected.compare(expected.size() - 4, 4, " ofi") == 0)) {
            expected.resize(expected.size() - 4);
        }
        EXPECT_EQ(expected, names) << row.tls;
    }
}

/* ---- any values ---- */

std::vector<std::string> all_variables()
{
    std::vector<std::string> names = {"TLS", "RNDV_THRESH", "NET_DEVICES", "CONFIG_DIR"};
    ucs_config_table_t table;

    for (unsigned i = 0; ucs_config_table_get(i, &table); ++i) {
        char prefix[UCS_CONFIG_NAME_MAX];
        const char *list = table.prefix;
        while (ucs_config_next_prefix(&list, prefix)) {
            for (const ucs_config_row_t *row = table.rows; row->name != nullptr; ++row) {
                names.push_back(std::string(prefix) + row->name);
            }
        }
    }
    return names;
}

std::string any_value(seeded_random &random)
{
    static const char *const words[] = {"",
                                        " ",
                                        ",",
                                        "^",
                                        "^,",
                                        "all",
                                        "^all",
                                        "inf",
                                        "auto",
                                        "y",
                                        "n",
                                        "try",
                                        "0",
                                        "1",
                                        "-1",
                                        "16",
                                        "64",
                                        "128",
                                        "4096",
                                        "65536",
                                        "1k",
                                        "1m",
                                        "8g",
                                        "999999999999999999999",
                                        "18446744073709551615",
                                        "1e308",
                                        "nan",
                                        "-inf",
                                        "0x10",
                                        "010",
                                        "1.5",
                                        "0.0001",
                                        "%s%n%p",
                                        "self",
                                        "mm",
                                        "self,mm,cma",
                                        "shm,shm",
                                        "fault:mm",
                                        "delay:trace:fault:mm",
                                        "fault:",
                                        ":",
                                        ":mm",
                                        "fault::mm",
                                        "hook:mm",
                                        "get_zcopy",
                                        "both",
                                        "am",
                                        "memfd",
                                        "posix,sysv",
                                        "sysv",
                                        "none",
                                        "trace",
                                        "warn,mm=trace",
                                        "mm,^cma",
                                        "^^mm",
                                        "a=b",
                                        "\"",
                                        "'",
                                        "\\",
                                        "\t",
                                        "\n",
                                        "\xff\xfe",
                                        "1kk",
                                        "1 k",
                                        "+5"};
    std::string value;

    switch (random.below(6)) {
    case 0:
        for (uint64_t length = random.below(30); length > 0; --length) {
            value += static_cast<char>(1 + random.below(255));
        }
        break;
    case 1:
        value.assign(random.below(6000), 'a' + static_cast<char>(random.below(26)));
        break;
    case 2:
        for (uint64_t count = random.below(8); count > 0; --count) {
            value +=
                std::string(words[random.below(std::size(words))]) + (random.one_in(2) ? "," : ":");
        }
        break;
    default:
        value = words[random.below(std::size(words))];
        break;
    }
    std::replace(value.begin(), value.end(), '/', '.'); /* no files all over the machine */
    return value;
}

/* Something with whatever came of the settings: never a crash, whether it works or not. */
int use_it()
{
    ucp_context_h context;
    ucp_worker_h workers[2] = {};
    ucp_worker_params_t worker_params;
    ucp_config_t *config;
    ucp_params_t params;

    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features   = UCP_FEATURE_TAG | UCP_FEATURE_WAKEUP;
    if (ucp_config_read("MPI", nullptr, &config) != UCS_OK) {
        return 0;
    }
    (void)printed(
        [&](FILE *stream) { ucp_config_print(config, stream, nullptr, UCS_CONFIG_PRINT_CONFIG); });
    const ucs_status_t status = ucp_init(&params, config, &context);
    ucp_config_release(config);
    if (status != UCS_OK) {
        return 0;
    }

    worker_params.field_mask = 0;
    for (ucp_worker_h &worker : workers) {
        if (ucp_worker_create(context, &worker_params, &worker) != UCS_OK) {
            worker = nullptr;
            continue;
        }
        ucp_address_t *address;
        size_t length;
        ucp_ep_params_t ep_params;
        ucp_ep_h ep;
        if (ucp_worker_get_address((workers[0] != nullptr) ? workers[0] : worker, &address,
                                   &length) != UCS_OK) {
            continue;
        }
        ep_params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
        ep_params.address    = address;
        if (ucp_ep_create(worker, &ep_params, &ep) == UCS_OK) {
            const ucp_request_param_t param = send_param(nullptr);
            static const bytes data(100000);
            for (size_t size : {8ul, 5000ul, 100000ul}) {
                void *request = ucp_tag_send_nbx(ep, data.data(), size, 1, &param);
                if (UCS_PTR_IS_PTR(request)) {
                    ucp_request_free(request);
                }
            }
        }
        ucp_worker_release_address(worker, address);
        for (int i = 0; i < 20; ++i) {
            ucp_worker_progress(worker);
        }
    }
    for (ucp_worker_h worker : workers) {
        if (worker != nullptr) {
            ucp_worker_destroy(worker);
        }
    }
    ucp_cleanup(context);
    return 0;
}

TEST(ucp_config, any_values)
{
    seeded_random random(501);
    { /* registers the tables */
        environment environment(settings{{"UCX_TLS", "fault:self"}});
        context context;
    }
    const std::vector<std::string> names = all_variables();
    ASSERT_GT(names.size(), 15u);

    char folder[] = "/tmp/halyard-test-XXXXXX";
    ASSERT_NE(nullptr, mkdtemp(folder));
    for (int batch = 0; batch < 12; ++batch) {
        settings last;
        const uint64_t seed       = random.bits();
        const child_result result = in_child({}, [&]() {
            std::mt19937_64 engine(seed);
            seeded_random values(seed);
            if (chdir(folder) != 0) {
                return 1;
            }
            const int null = open("/dev/null", O_WRONLY);
            const int kept = dup(STDERR_FILENO);
            fcntl(kept, F_SETFD, FD_CLOEXEC);
            for (int i = 0; i < 25; ++i) {
                settings env;
                for (uint64_t count = 1 + values.below(4); count > 0; --count) {
                    env.emplace_back((values.one_in(8) ? "MPI_UCX_" : "UCX_") +
                                         names[values.below(names.size())],
                                     any_value(values));
                }
                /* what was tried last, for whoever looks at a crash */
                std::string text = "---\n";
                for (const auto &[name, value] : env) {
                    text += name + "=" + value.substr(0, 100) + "\n";
                }
                if (write(kept, text.data(), text.size()) < 0) {
                    return 1;
                }
                dup2(null, STDERR_FILENO);
                environment environment(env);
                ucs_global_opts_reload();
                use_it();
                dup2(kept, STDERR_FILENO);
            }
            return 0;
        });
        if (result.exit_code != 0) {
            std::string text;
            for (auto line = result.lines.rbegin(); line != result.lines.rend(); ++line) {
                text = *line + "\n" + text;
                if (text.size() > 2000 || (*line == "---")) {
                    break;
                }
            }
            ADD_FAILURE() << "exit code " << result.exit_code << " after\n" << text;
        }
    }
    EXPECT_EQ(0, system((std::string("rm -rf ") + folder).c_str()));
}

/* ---- shortage ---- */

/* The k-th allocation or system call fails, for each k: an error, no crash, nothing left behind. */
TEST(context, every_call_of_the_start_fails_once)
{
    for (const char *point :
         {"malloc", "calloc", "memalign", "mmap", "memfd_create", "socket", "bind", "listen",
          "epoll_create1", "epoll_ctl", "eventfd", "open", "fallocate", "*"}) {
        const child_result result = in_child({}, [&]() {
            const auto before = open_descriptors();
            int k             = 1;
            for (; k < 200; ++k) {
                ucs_fault_set(point, std::to_string(k).c_str());
                use_it();
                uint64_t failed = 0;
                ucs_fault_query(point, nullptr, &failed);
                ucs_fault_clear(nullptr);
                if (failed == 0) {
                    break;
                }
            }
            if (open_descriptors() != before) {
                return 3;
            }
            use_it(); /* and now it works */
            return (k == 200) ? 2 : 0;
        });
        EXPECT_TRUE((result.exit_code == 0) || (result.exit_code == 2))
            << point << " " << result.exit_code << all_lines(result);
    }
}

} // namespace
