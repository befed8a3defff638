/* Halyard: a bad line for tests between hosts.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "line.h"
#include "node.h"

#include <algorithm>
#include <arpa/inet.h>
#include <linux/if_packet.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <queue>
#include <random>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace mp {

namespace {

/* A frame with the kernel's notes on it: which checksum is still to be made, and how it is to be
 * cut where it holds several packets. */
constexpr size_t FRAME_MAX = 66000;

struct frame {
    double due_s;
    uint64_t number; /* of those that are due at the same time the first comes first */
    std::vector<uint8_t> bytes;

    bool operator<(const frame &other) const
    {
        return (due_s != other.due_s) ? (due_s > other.due_s) : (number > other.number);
    }
};

struct direction {
    std::priority_queue<frame> frames;
    size_t waiting = 0;   /* bytes */
    double free_s  = 0;   /* when the line is free for the next frame */
};

int open_device(const std::string &name)
{
    const int fd = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, htons(ETH_P_ALL));
    struct sockaddr_ll address = {};
    struct packet_mreq all     = {};
    const int yes              = 1;
    const int room             = 4 << 20;

    address.sll_family   = AF_PACKET;
    address.sll_protocol = htons(ETH_P_ALL);
    address.sll_ifindex  = static_cast<int>(if_nametoindex(name.c_str()));
    all.mr_ifindex       = address.sll_ifindex;
    all.mr_type          = PACKET_MR_PROMISC;
    if ((fd >= 0) &&
        ((address.sll_ifindex == 0) ||
         (setsockopt(fd, SOL_PACKET, PACKET_VNET_HDR, &yes, sizeof(yes)) != 0) ||
         (setsockopt(fd, SOL_PACKET, PACKET_ADD_MEMBERSHIP, &all, sizeof(all)) != 0) ||
         (setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof(room)) != 0) ||
         (bind(fd, reinterpret_cast<struct sockaddr *>(&address), sizeof(address)) != 0))) {
        close(fd);
        return -1;
    }
    return fd;
}

} // namespace

line_carrier::line_carrier(const std::string &near, const std::string &far, const line &what) :
    m_ends{open_device(near), open_device(far)}, m_line(what)
{
}

line_carrier::~line_carrier()
{
    close(m_ends[0]);
    close(m_ends[1]);
}

void line_carrier::run()
{
    std::mt19937_64 random(m_line.seed);
    std::uniform_real_distribution<double> share(0, 1);
    std::vector<uint8_t> room(FRAME_MAX);
    direction ways[2];
    uint64_t number = 0;

    for (;;) {
        const double now = now_s();
        double next_s    = now + 1;
        for (unsigned i = 0; i < 2; ++i) {
            direction &way = ways[i];
            while (!way.frames.empty() && (way.frames.top().due_s <= now)) {
                const std::vector<uint8_t> &bytes = way.frames.top().bytes;
                way.waiting -= bytes.size();
                (void)!write(m_ends[!i], bytes.data(), bytes.size()); /* or it is lost */
                way.frames.pop();
            }
            next_s = way.frames.empty() ? next_s : std::min(next_s, way.frames.top().due_s);
        }
        struct pollfd fds[2]   = {{m_ends[0], POLLIN, 0}, {m_ends[1], POLLIN, 0}};
        const double wait_s    = std::max(next_s - now, 0.0);
        struct timespec within = {static_cast<time_t>(wait_s),
                                  static_cast<long>((wait_s - static_cast<time_t>(wait_s)) * 1e9)};
        (void)ppoll(fds, 2, &within, nullptr);
        for (unsigned i = 0; i < 2; ++i) {
            direction &way = ways[i];
            struct sockaddr_ll from;
            socklen_t from_length = sizeof(from);
            ssize_t length;
            while ((length = recvfrom(m_ends[i], room.data(), room.size(), 0,
                                      reinterpret_cast<struct sockaddr *>(&from),
                                      &from_length)) > 0) {
                const auto size = static_cast<size_t>(length);
                if ((from.sll_pkttype == PACKET_OUTGOING) || (share(random) < m_line.loss) ||
                    (way.waiting + size > m_line.queue)) {
                    continue; /* what we have sent, or lost */
                }
                way.free_s = std::max(way.free_s, now_s());
                if (m_line.bytes_per_s > 0) {
                    way.free_s += static_cast<double>(size) / m_line.bytes_per_s;
                }
                way.frames.push({way.free_s + m_line.delay_s + (m_line.jitter_s * share(random)),
                                 ++number, {room.begin(), room.begin() + length}});
                way.waiting += size;
            }
        }
    }
}

} // namespace mp
