/* Halyard: what a process has of the system's resources.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "snapshot.h"

#include <gtest/gtest.h>
#include <ucs/sys/compiler.h>

#include <algorithm>
#include <cstring>
#include <dirent.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <sstream>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

extern char **environ;

namespace mp {

static void for_each_entry(const char *path, const std::function<void(const std::string &)> &func)
{
    DIR *dir = opendir(path);

    if (dir == nullptr) {
        return;
    }
    while (const struct dirent *entry = readdir(dir)) {
        if ((entry->d_name[0] != '.') &&
            (strtol(entry->d_name, nullptr, 10) != dirfd(dir))) { /* not what we look with */
            func(entry->d_name);
        }
    }
    closedir(dir);
}

static std::string link_of(const std::string &path)
{
    char target[512];
    const ssize_t length = readlink(path.c_str(), target, sizeof(target));

    return (length < 0) ? "?" : std::string(target, static_cast<size_t>(length));
}

static std::string line_of(const std::string &path)
{
    std::ifstream file(path);
    std::string line;

    std::getline(file, line);
    return line;
}

process_state::process_state() : actions(NSIG)
{
    for_each_entry("/proc/self/fd", [this](const std::string &name) {
        descriptors.insert(name + " " + link_of("/proc/self/fd/" + name));
    });
    for_each_entry("/proc/self/task", [this](const std::string &name) {
        threads.insert(name + " " + line_of("/proc/self/task/" + name + "/comm"));
    });
    for (int signum = 1; signum < NSIG; ++signum) {
        memset(&actions[signum], 0, sizeof(actions[signum]));
        (void)sigaction(signum, nullptr, &actions[signum]);
    }
    sigprocmask(SIG_SETMASK, nullptr, &mask);

    const mode_t bits = umask(0);
    umask(bits);
    others["umask"]          = std::to_string(bits);
    others["working folder"] = link_of("/proc/self/cwd");
    for (unsigned i = 0; environ[i] != nullptr; ++i) {
        others["environment"] += std::string(environ[i]) + "\n";
    }
    for (int resource = 0; resource < RLIMIT_NLIMITS; ++resource) {
        struct rlimit limit;

        getrlimit(static_cast<__rlimit_resource_t>(resource), &limit);
        others["limits"] += std::to_string(limit.rlim_cur) + "/" + std::to_string(limit.rlim_max) +
                            " ";
    }
    others["scheduling"] = line_of("/proc/self/timerslack_ns");
}

void expect_same_state(const process_state &before, const process_state &after, const char *what)
{
    SCOPED_TRACE(what);
    EXPECT_EQ(before.descriptors, after.descriptors);
    EXPECT_EQ(before.threads, after.threads);
    EXPECT_EQ(before.others, after.others);
    for (int signum = 1; signum < NSIG; ++signum) {
        EXPECT_EQ(before.actions[signum].sa_handler, after.actions[signum].sa_handler)
            << "signal " << signum;
        EXPECT_EQ(before.actions[signum].sa_flags, after.actions[signum].sa_flags)
            << "signal " << signum;
        EXPECT_EQ(sigismember(&before.mask, signum), sigismember(&after.mask, signum))
            << "signal " << signum;
    }
}

size_t count_mappings()
{
    std::ifstream file("/proc/self/maps");
    std::string line;
    size_t count = 0;

    while (std::getline(file, line)) {
#if UCS_HAVE_ASAN || UCS_HAVE_TSAN
        count += (line[line.find(' ') + 4] == 's'); /* "rw-s" */
#else
        ++count;
#endif
    }
    return count;
}

size_t count_descriptors()
{
    size_t count = 0;

    for_each_entry("/proc/self/fd", [&](const std::string &) { ++count; });
    return count;
}

static void add_names(const char *folder, const char *part, std::set<std::string> &names)
{
    for_each_entry(folder, [&](const std::string &name) {
        if (name.find(part) != std::string::npos) {
            names.insert(std::string(folder) + "/" + name);
        }
    });
}

static void add_sysv(const std::function<bool(int creator)> &is_wanted,
                     std::set<std::string> &names)
{
    std::ifstream file("/proc/sysvipc/shm");
    std::string line;

    std::getline(file, line); /* the heading */
    while (std::getline(file, line)) {
        std::istringstream words(line);
        std::string key, id, mode, size;
        int creator = 0;

        words >> key >> id >> mode >> size >> creator;
        if (is_wanted(creator)) {
            names.insert("System V segment " + id + " of " + std::to_string(creator));
        }
    }
}

std::set<std::string> leftovers(const std::set<int> &creators)
{
    std::set<std::string> left;

    for (unsigned looks = 0; looks < 100; ++looks) { /* names of programs beside us go at once */
        std::set<std::string> names, still;
        add_names("/dev/shm", "halyard", names);
        add_sysv([&](int creator) { return creators.count(creator) != 0; }, names);
        std::set_intersection(names.begin(), names.end(), left.begin(), left.end(),
                              std::inserter(still, still.end()));
        left = (looks == 0) ? names : still;
        if (left.empty()) {
            break;
        }
        usleep(10000);
    }
    return left;
}

std::set<std::string> all_names()
{
    std::set<std::string> names;

    add_names("/dev/shm", "", names);
    add_names("/tmp", "", names);
    add_sysv([](int) { return true; }, names);
    return names;
}

memory_use memory_of_self()
{
    std::ifstream file("/proc/self/smaps");
    memory_use use = {};
    bool is_shared = false;
    std::string line;

    while (std::getline(file, line)) {
        std::istringstream words(line);
        std::string first, second;
        size_t kib = 0;

        words >> first >> second;
        if (first.find('-') != std::string::npos) { /* the head of a mapping */
            is_shared = (second.size() == 4) && (second[3] == 's');
        } else if ((first == "Size:") && is_shared) {
            use.shared_size += strtoull(second.c_str(), nullptr, 10) * 1024;
        } else if ((first == "Rss:") && is_shared) {
            use.shared_used += strtoull(second.c_str(), nullptr, 10) * 1024;
        } else if (first == "Anonymous:") {
            kib            = strtoull(second.c_str(), nullptr, 10);
            use.anonymous += kib * 1024;
        }
    }
    return use;
}

size_t shared_memory_made()
{
    size_t size = 0;

    for (const auto &entry : std::filesystem::directory_iterator("/proc/self/fd")) {
        std::error_code gone;
        const std::string target = std::filesystem::read_symlink(entry.path(), gone).string();
        struct stat st;

        if ((target.rfind("/memfd:", 0) == 0) && (stat(entry.path().c_str(), &st) == 0)) {
            size += static_cast<size_t>(st.st_blocks) * 512;
        }
    }
    return size;
}

} // namespace mp
