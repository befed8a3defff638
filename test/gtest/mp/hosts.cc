/* Halyard: hosts for tests between nodes.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "hosts.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace mp {

static constexpr char BOOT_ID[] = "/proc/sys/kernel/random/boot_id";

/* In the child: namespaces of its own, and a file of its own in the place of the kernel's. */
static bool become_host(const std::string &boot_id)
{
    char path[] = "/tmp/halyard-boot-XXXXXX";
    bool done   = false;

    if (unshare(CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWUTS) != 0) {
        return false;
    }
    if (boot_id.empty()) {
        return true;
    }
    const int fd = mkstemp(path);
    if (fd >= 0) {
        const ssize_t length = static_cast<ssize_t>(boot_id.size());
        done = (write(fd, boot_id.data(), boot_id.size()) == length) &&
               (mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0) &&
               (mount(path, BOOT_ID, nullptr, MS_BIND, nullptr) == 0);
        close(fd);
        unlink(path);
    }
    return done;
}

bool hosts::start_holder(const std::string &boot_id)
{
    int fds[2];
    char answer = 0;

    if (pipe2(fds, O_CLOEXEC) != 0) {
        return false;
    }
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        answer = become_host(boot_id) ? 'y' : 'n';
        if (write(fds[1], &answer, 1) != 1) {
            _exit(1);
        }
        for (;;) {
            pause();
        }
    }
    close(fds[1]);
    const ssize_t length = read(fds[0], &answer, 1);
    close(fds[0]);
    if (pid > 0) {
        m_holders.push_back(pid);
    }
    return (length == 1) && (answer == 'y');
}

bool hosts::run(unsigned holder, const std::string &command) const
{
    const std::string whole = "nsenter -t " + std::to_string(m_holders[holder]) + " -n " +
                              command + " >/dev/null 2>&1";

    return system(whole.c_str()) == 0;
}

std::string hosts::address(unsigned host) const
{
    return address(host, 0);
}

std::string hosts::address(unsigned host, unsigned device) const
{
    const std::string network = std::to_string(210 + (2 * device));

    return ((m_network.family == AF_INET6) ? "fd00:" + network + "::" : "10." + network + ".0.") +
           std::to_string(host + 1);
}

/* Names of a host's device and of the port of the switch that it is plugged into. */
static std::string device_name(unsigned device)
{
    return "eth" + std::to_string(device);
}

static std::string port_name(unsigned host, unsigned device)
{
    return "port" + std::to_string(host) + "." + std::to_string(device);
}

bool hosts::plug_in(unsigned host, unsigned device) const
{
    const unsigned the_switch = m_network.hosts;
    const std::string port    = port_name(host, device);
    const std::string name    = device_name(device);
    const std::string mtu     = " mtu " + std::to_string(m_network.mtu);
    const bool is_6           = (m_network.family == AF_INET6);

    return run(the_switch, "ip link add " + port + mtu + " type veth peer name " + name + mtu +
                               " netns " + std::to_string(m_holders[host])) &&
           run(the_switch, "ip link set " + port + " master br" + std::to_string(device) + " up") &&
           run(host, "ip link set lo up") &&
           run(host, "ip addr add " + address(host, device) + (is_6 ? "/64" : "/24") + " dev " +
                         name + (is_6 ? " nodad" : "")) &&
           run(host, "ip link set " + name + " up");
}

/* With IPv6 a host has another device too, that leads nowhere and comes first in the lists: it has
 * the same address on each host, as those of containers do. */
bool hosts::add_stray_device(unsigned host) const
{
    return run(host, "ip -6 route add default dev eth0") &&
           run(host, "ip link add aa0 type veth peer name aa1") &&
           run(host, "ip addr add fd00:211::1/64 dev aa0 nodad") &&
           run(host, "ip link set aa0 up") && run(host, "ip link set aa1 up");
}

/* Until the kernel has noticed that the cable is in: it takes its time, and libfabric passes over
 * devices without one. */
bool hosts::is_running(unsigned host, unsigned device) const
{
    for (unsigned i = 0; i < 200; ++i) {
        if (run(host, "ip link show " + device_name(device) + " | grep -q 'state UP'")) {
            return true;
        }
        usleep(10000);
    }
    return false;
}

hosts::hosts(const network &what) : m_network(what)
{
    const unsigned count = what.hosts;

    if (geteuid() != 0) {
        m_why_not = "only root can make hosts of network namespaces";
        return;
    }
    for (unsigned i = 0; i <= count; ++i) {
        const std::string boot_id = (i == count) ? "" :
                                    "00000000-0000-4000-8000-00000000000" + std::to_string(i) +
                                    "\n";
        if (!start_holder(boot_id)) {
            m_why_not = "no network namespaces here";
            return;
        }
    }
    bool done = true;
    for (unsigned device = 0; done && (device < what.devices); ++device) {
        const std::string bridge = "br" + std::to_string(device);
        done = run(count, "ip link add " + bridge + " type bridge") &&
               run(count, "ip link set " + bridge + " up");
        for (unsigned i = 0; done && (i < count); ++i) {
            done = plug_in(i, device);
        }
    }
    for (unsigned i = 0; done && (i < count); ++i) {
        done = (what.family != AF_INET6) || add_stray_device(i);
        for (unsigned device = 0; done && (device < what.devices); ++device) {
            done = is_running(i, device);
        }
    }
    if (!done) {
        m_why_not = "no virtual network here (bridge, veth, the tool ip)";
    }
}

hosts::~hosts()
{
    m_holders.insert(m_holders.end(), m_carriers.begin(), m_carriers.end());
    for (pid_t pid : m_holders) {
        kill(pid, SIGKILL);
        waitpid(pid, nullptr, 0);
    }
}

void hosts::join(unsigned host) const
{
    for (const char *kind : {"net", "mnt"}) {
        const std::string path = "/proc/" + std::to_string(m_holders[host]) + "/ns/" + kind;
        const int fd           = open(path.c_str(), O_RDONLY | O_CLOEXEC);
        ASSERT_GE(fd, 0) << path << ": " << strerror(errno);
        ASSERT_EQ(0, setns(fd, 0)) << path << ": " << strerror(errno);
        close(fd);
    }
}

void hosts::add_ipv4(unsigned host) const
{
    EXPECT_TRUE(run(host, "ip addr add 10.210.0." + std::to_string(host + 1) + "/24 dev eth0"));
}

void hosts::set_link(unsigned host, bool is_up, unsigned device) const
{
    EXPECT_TRUE(run(m_network.hosts,
                    "ip link set " + port_name(host, device) + (is_up ? " up" : " down")));
}

void hosts::set_apart(unsigned host, unsigned device) const
{
    EXPECT_TRUE(run(m_network.hosts, "ip link set " + port_name(host, device) + " nomaster"));
}

void hosts::impair(unsigned host, const line &what)
{
    const unsigned the_switch = m_network.hosts;
    const std::string port    = port_name(host, 0);
    const std::string near    = "bad" + std::to_string(host);
    const std::string far     = "far" + std::to_string(host);
    const std::string mtu     = " mtu " + std::to_string(m_network.mtu);
    char answer               = 0;
    int fds[2];

    ASSERT_TRUE(run(the_switch, "ip link set " + port + " nomaster"));
    ASSERT_TRUE(run(the_switch, "ip link add " + near + mtu + " type veth peer name " + far + mtu));
    ASSERT_TRUE(run(the_switch, "ip link set " + far + " master br0 up"));
    ASSERT_TRUE(run(the_switch, "ip link set " + near + " up"));
    ASSERT_TRUE(run(host, "ip link set eth0 gso_max_segs 1")); /* packets are lost one by one */
    ASSERT_EQ(0, pipe2(fds, O_CLOEXEC));
    const pid_t pid = fork();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        join(the_switch);
        line_carrier carrier(port, near, what);
        answer = carrier.is_open() ? 'y' : 'n';
        if ((write(fds[1], &answer, 1) != 1) || (answer == 'n')) {
            _exit(1);
        }
        carrier.run();
    }
    close(fds[1]);
    m_carriers.push_back(pid);
    EXPECT_EQ(1, read(fds[0], &answer, 1));
    EXPECT_EQ('y', answer) << "no raw sockets here";
    close(fds[0]);
}

} // namespace mp
