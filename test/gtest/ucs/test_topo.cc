/* Halyard: tests of topology.
 *
 * The topology is read once a process, so each machine that hwloc is made to imagine is looked at
 * by a fresh copy of this program, which prints what it sees.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <gtest/gtest.h>

#include <ucs/sys/sys.h>
#include <ucs/sys/topo.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sched.h>
#include <string>
#include <unistd.h>

namespace {

std::string mapped_libraries()
{
    std::ifstream maps("/proc/self/maps");
    std::string line, all;
    while (std::getline(maps, line)) {
        all += line + "\n";
    }
    return all;
}

/* Not a test of its own: what the fresh copy runs. */
TEST(topo_report, DISABLED_print)
{
    const bool before = mapped_libraries().find("libhwloc") != std::string::npos;
    printf("REPORT loaded %d nodes %u :", before, ucs_topo_num_nodes());
    for (unsigned i = 0; i < ucs_topo_num_nodes(); ++i) {
        printf(" %d", ucs_topo_node(i));
    }
    printf(" : process %d :", ucs_topo_process_node());
    for (unsigned i = 0; i < ucs_topo_num_nodes(); ++i) {
        unsigned distance = 0;
        EXPECT_EQ(UCS_OK, ucs_topo_distance(ucs_topo_node(0), ucs_topo_node(i), &distance));
        printf(" %u", distance);
    }
    printf(" END\n");
}

std::string report(const std::string &environment)
{
    char self[512] = "";
    if (readlink("/proc/self/exe", self, sizeof(self) - 1) < 0) {
        return "";
    }
    const std::string command = /* whole, also where we are one shard of several */
        environment + " HALYARD_TEST_LIMIT=0 GTEST_TOTAL_SHARDS=1 GTEST_SHARD_INDEX=0 " + self +
        " --gtest_filter=topo_report.DISABLED_print --gtest_also_run_disabled_tests";
    FILE *stream = popen(command.c_str(), "r");
    std::string result;
    char line[1024];
    while (fgets(line, sizeof(line), stream) != nullptr) {
        const char *start = strstr(line, "REPORT ");
        const char *end   = strstr(line, " END");
        if ((start != nullptr) && (end != nullptr)) {
            result.assign(start + 7, end);
        }
    }
    EXPECT_EQ(0, pclose(stream));
    return result;
}

TEST(topo, imagined_machines)
{
#ifndef HAVE_HWLOC
    EXPECT_EQ("loaded 0 nodes 1 : 0 : process 0 : 10", report(""));
#else
    EXPECT_EQ("loaded 0 nodes 1 : 0 : process 0 : 10",
              report("HWLOC_SYNTHETIC='numa:1 core:2 pu:1'"));
    EXPECT_EQ("loaded 0 nodes 4 : 0 1 2 3 : process 0 : 10 20 20 20",
              report("HWLOC_SYNTHETIC='numa:4 core:64 pu:2'"));
    /* too many to tell apart, and nonsense: one node */
    EXPECT_EQ("loaded 0 nodes 1 : 0 : process 0 : 10",
              report("HWLOC_SYNTHETIC='numa:65 pu:1'"));
    /* a process that may run on processors of several nodes is bound to none of them */
    if (ucs_sys_num_cpus() > 1) {
        const std::string text = report("HWLOC_SYNTHETIC='numa:64 pu:1'");
        EXPECT_NE(std::string::npos, text.find("nodes 64 : 0 1 2 3 ")) << text;
        EXPECT_NE(std::string::npos, text.find(" 62 63 : process -1 : 10 20 ")) << text;
    }
#endif
}

TEST(topo, this_machine)
{
    const unsigned count = ucs_topo_num_nodes();
    ASSERT_GE(count, 1u);
    ASSERT_LE(count, static_cast<unsigned>(UCS_TOPO_NODES_MAX));
    for (unsigned i = 0; i < count; ++i) {
        for (unsigned j = 0; j < count; ++j) {
            unsigned ij = 0, ji = 0;
            ASSERT_EQ(UCS_OK, ucs_topo_distance(ucs_topo_node(i), ucs_topo_node(j), &ij));
            ASSERT_EQ(UCS_OK, ucs_topo_distance(ucs_topo_node(j), ucs_topo_node(i), &ji));
            EXPECT_EQ(ij, ji);
            EXPECT_EQ(i == j, ij == UCS_TOPO_DISTANCE_LOCAL);
        }
    }
    unsigned distance = 77;
    EXPECT_EQ(UCS_ERR_NO_ELEM, ucs_topo_distance(12345, ucs_topo_node(0), &distance));
    EXPECT_EQ(UCS_ERR_NO_ELEM, ucs_topo_distance(ucs_topo_node(0), -1, &distance));
    EXPECT_EQ(77u, distance);
    EXPECT_EQ(UCS_TOPO_NODE_ANY, ucs_topo_node(count));

    if (count == 1) {
        EXPECT_EQ(ucs_topo_node(0), ucs_topo_process_node());
    }
}

TEST(topo, pci_names_are_checked)
{
    int node = 77;
    for (const char *bad : {"", "0000", "0000:00:00", "0000:00:00.00", "../0000:00:1f.0",
                            "0000/00:00.0", "gggg:00:00.0", "0000:00:00.0/.."}) {
        EXPECT_EQ(UCS_ERR_INVALID_PARAM, ucs_topo_pci_node(bad, &node)) << bad;
    }
    EXPECT_EQ(UCS_ERR_NO_ELEM, ucs_topo_pci_node("ffff:FF:1f.7", &node));
    EXPECT_EQ(77, node);
}

} // namespace
