/* Halyard: hosts for tests between nodes: network namespaces, joined by a bridge for each device.
 *
 * A host has its own network and its own boot id, so that the library takes it for another node. It
 * exists as long as the object; processes join it. Takes root, and the tool ip.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#ifndef TEST_GTEST_MP_HOSTS_H
#define TEST_GTEST_MP_HOSTS_H

#include "line.h"

#include <string>
#include <sys/socket.h>
#include <sys/types.h>
#include <vector>

namespace mp {

/* What joins the hosts. */
struct network {
    unsigned hosts  = 2;
    int      family = AF_INET; /* AF_INET6: unique local addresses, none of the older form */
    unsigned mtu    = 1500;    /* bytes */
    unsigned devices = 1;      /* of each host: eth0, eth1, ..., in a network of its own each */
};

class hosts {
public:
    explicit hosts(const network &what = {});
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

    /* Address of a host. */
    std::string address(unsigned host) const;

    /* Gives a host of IPv6 an address of IPv4 as well. */
    void add_ipv4(unsigned host) const;

    /* Plugs a host's cable in or out. */
    void set_link(unsigned host, bool is_up, unsigned device = 0) const;

    /* Takes a device's port out of its network: it is up, and leads nowhere. */
    void set_apart(unsigned host, unsigned device) const;

    /* Puts a bad line between a host's first device and its network; once a host. */
    void impair(unsigned host, const line &what);

private:
    bool start_holder(const std::string &boot_id);
    bool run(unsigned holder, const std::string &command) const;

    std::string address(unsigned host, unsigned device) const;
    bool plug_in(unsigned host, unsigned device) const;
    bool add_stray_device(unsigned host) const;
    bool is_running(unsigned host, unsigned device) const;

    std::vector<pid_t> m_holders; /* the last one is the switch */
    std::vector<pid_t> m_carriers; /* of bad lines */
    network            m_network;
    std::string        m_why_not;
};

} // namespace mp

#endif
