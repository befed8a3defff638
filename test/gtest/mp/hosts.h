/* Halyard: hosts for tests between nodes: network namespaces, joined by a bridge.
 *
 * A host has its own network and its own boot id, so that the library takes it for another node. It
 * exists as long as the object; processes join it. Takes root, and the tools ip and, for delays and
 * losses, tc.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_MP_HOSTS_H
#define TEST_GTEST_MP_HOSTS_H

#include <string>
#include <sys/types.h>
#include <vector>

namespace mp {

class hosts {
public:
    explicit hosts(unsigned count);
    ~hosts();
    hosts(const hosts &) = delete;
    hosts &operator=(const hosts &) = delete;

    /* Empty, or why there can be none here. */
    const std::string &why_not() const
    {
        return m_why_not;
    }

    /* Moves the calling process to a host, for good: call it in a forked one. */
    void join(unsigned host) const;

    /* IPv4 address of a host. */
    static std::string address(unsigned host);

    /* Plugs a host's cable in or out. */
    void set_link(unsigned host, bool is_up) const;

    /* The arguments of "tc qdisc add dev eth0 root netem"; false where that cannot be had. */
    bool impair(unsigned host, const std::string &netem) const;

private:
    bool start_holder(const std::string &boot_id);
    bool run(unsigned holder, const std::string &command) const;

    std::vector<pid_t> m_holders; /* the last one is the switch */
    unsigned           m_count;
    std::string        m_why_not;
};

} // namespace mp

#endif
