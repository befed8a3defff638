/* Halyard: tests of random programs: the memory of a process, its keys, and what must be in it.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "program.h"

#include <algorithm>
#include <unistd.h>

namespace mp::programs {

static constexpr uint64_t TAG_KEY = 1ull << 62;

/* Keys go first, then the mappings, then the memory. */
void program::drop_areas(bool all)
{
    const auto is_old = [all](const area_plan &a) { return all || a.is_new; };

    for (unsigned i = 0; i < m_plan.count(); ++i) {
        for (size_t k = 0; k < m_peers[i].size(); ++k) {
            ucp_rkey_h &rkey = m_peers[i][k].rkey;
            if (is_old(m_plan.areas[i][k]) && (rkey != nullptr)) {
                ucp_rkey_destroy(std::exchange(rkey, nullptr));
            }
        }
    }
    m_node->barrier();
    for (size_t k = 0; k < m_areas.size(); ++k) {
        if (is_old(m_plan.areas[m_me.index()][k]) && (m_areas[k] != nullptr)) {
            if (m_areas[k]->mem != nullptr) {
                EXPECT_EQ(UCS_OK, ucp_mem_unmap(m_node->context(), m_areas[k]->mem));
            }
            m_areas[k].reset();
        }
    }
}

void program::renew_areas()
{
    for (size_t k = 0; k < m_areas.size(); ++k) {
        const area_plan &p = m_plan.areas[m_me.index()][k];
        if (!p.is_new) {
            continue;
        }
        m_areas[k] = std::make_unique<area>(m_gpu.get(), p);
        if (p.is_mapped) {
            ucp_mem_map_params_t map = {};
            map.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS | UCP_MEM_MAP_PARAM_FIELD_LENGTH;
            map.address    = m_areas[k]->memory();
            map.length     = m_areas[k]->size();
            EXPECT_EQ(UCS_OK, ucp_mem_map(m_node->context(), &map, &m_areas[k]->mem));
        }
    }
}

/* The keys of new areas, to and from all, this process too. */
void program::tell_keys()
{
    std::vector<ucs_status_ptr_t> sends;
    std::vector<std::vector<uint8_t>> notes;

    for (size_t k = 0; k < m_areas.size(); ++k) {
        const area_plan &p = m_plan.areas[m_me.index()][k];
        if (p.is_new && p.is_mapped) {
            const uint64_t address = reinterpret_cast<uintptr_t>(m_areas[k]->memory());
            void *packed           = nullptr;
            size_t size            = 0;
            EXPECT_EQ(UCS_OK, ucp_rkey_pack(m_node->context(), m_areas[k]->mem, &packed, &size));
            notes.emplace_back(sizeof(address) + size);
            memcpy(notes.back().data(), &address, sizeof(address));
            memcpy(notes.back().data() + sizeof(address), packed, size);
            ucp_rkey_buffer_release(packed);
            for (unsigned i = 0; i < m_plan.count(); ++i) {
                sends.push_back(m_node->send(m_node->ep(i), notes.back().data(),
                                             notes.back().size(),
                                             TAG_KEY + (m_me.index() * 100) + k));
            }
        }
    }
    for (unsigned i = 0; i < m_plan.count(); ++i) {
        for (size_t k = 0; k < m_peers[i].size(); ++k) {
            std::vector<uint8_t> note(2048);
            peer_area &there = m_peers[i][k];
            if (m_plan.areas[i][k].is_new && m_plan.areas[i][k].is_mapped) {
                m_me.waits_for("the key of area %zu of process %u", k, i);
                EXPECT_EQ(UCS_OK, m_node->wait(m_node->recv(note.data(), note.size(),
                                                            TAG_KEY + (i * 100) + k)));
                memcpy(&there.address, note.data(), sizeof(there.address));
                EXPECT_EQ(UCS_OK, ucp_ep_rkey_unpack(m_node->ep(i), note.data() + 8,
                                                     &there.rkey));
            }
        }
    }
    for (ucs_status_ptr_t send : sends) {
        EXPECT_EQ(UCS_OK, m_node->wait(send));
    }
}

/* Bytes of a message into the images where they belong. */
void program::scatter(const operation &op, unsigned which, uint64_t id, size_t length)
{
    std::vector<uint8_t> bytes(op.length);
    size_t done = 0;

    fill(bytes.data(), bytes.size(), id);
    for (const span &s : op.at[which].spans) {
        const size_t part = std::min(s.length, length - done);
        memcpy(m_areas[s.area]->image(s), bytes.data() + done, part);
        done += part;
    }
}

void program::write_images()
{
    for (size_t k = 0; k < m_areas.size(); ++k) {
        m_areas[k]->clear(m_plan.areas[m_me.index()][k].used);
    }
    for (const operation &op : m_plan.ops) {
        const bool is_there = (op.kind == what::ATOMIC) ? (op.id != 0) :
                              (op.kind == what::GET) && (op.before == NONE);
        if ((op.kind != what::GET) && (op.kind != what::ATOMIC) && (op.kind != what::UNMATCHED) &&
            is_mine(op, FROM)) {
            scatter(op, FROM, op.id, op.length);
        }
        if (is_there && is_mine(op, TO)) {
            scatter(op, TO, op.id, op.length);
        }
    }
    for (auto &a : m_areas) {
        a->write_image();
    }
}

/* What an operation has made of this process's memory. */
void program::finish_image(const operation &op)
{
    if ((op.kind == what::GET) && is_mine(op, FROM)) {
        scatter(op, FROM, op.id, op.length);
    }
    if (!is_mine(op, TO) || op.is_dropped || (op.kind == what::GET) ||
        (op.kind == what::UNMATCHED)) {
        return;
    }
    if (op.kind == what::ATOMIC) {
        uint8_t *word = m_areas[op.at[TO].spans[0].area]->image(op.at[TO].spans[0]);
        uint64_t old  = 0;
        memcpy(&old, word, op.length);
        uint64_t operands[2] = {0, 0};
        memcpy(operands, &op.operands[0], op.length);
        memcpy(operands + 1, &op.operands[1], op.length);
        old = apply(op.atomic, old, operands);
        memcpy(word, &old, op.length);
    } else if (op.room == op.length) {
        scatter(op, TO, op.id, op.length);
    } else { /* what of it has come is not said */
        for (const span &s : op.at[TO].spans) {
            m_areas[s.area]->copy(m_areas[s.area]->image(s), m_areas[s.area]->memory() + s.offset,
                                  s.length);
        }
    }
}

void program::expect_images()
{
    for (const operation &op : m_plan.ops) {
        finish_image(op);
    }
    for (unsigned k = 0; k < m_areas.size(); ++k) {
        const ssize_t place = m_areas[k]->compare();
        if (place < 0) {
            continue;
        }
        std::string near;
        for (const operation &op : m_plan.ops) {
            for (unsigned which : {FROM, TO}) {
                for (const span &s : op.at[which].spans) {
                    if (is_mine(op, which) && (s.area == k) &&
                        (s.offset <= static_cast<size_t>(place) + GUARD) &&
                        (static_cast<size_t>(place) < s.offset + s.length + GUARD)) {
                        near += "\n  bytes " + std::to_string(s.offset) + " to " +
                                std::to_string(s.offset + s.length) + " are of " +
                                m_plan.describe(op);
                    }
                }
            }
        }
        ADD_FAILURE() << "round " << m_round << ", process " << m_me.index() << ", area " << k
                      << " (" << perf_memory_names[m_areas[k]->kind()] << "): byte " << place
                      << " is wrong" << near;
    }
}

} // namespace mp::programs
