/* Halyard: the help of ucx_perftest.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */

#include "config.h"

#include "options.h"

static void list_tests(FILE *file)
{
    unsigned i;

    for (i = 0; i < perf_op_count; ++i) {
        if (perf_ops[i].kind != PERF_KIND_LIMIT) {
            fprintf(file, "  %-14s %s\n", perf_ops[i].name, perf_ops[i].what);
        }
    }
}

void perf_options_help(FILE *file)
{
    fputs("Usage: ucx_perftest --self [options]          both processes here: one table\n"
          "       ucx_perftest [options]                 server: waits for a client\n"
          "       ucx_perftest HOST -t TEST [options]    client\n"
          "       ucx_perftest -l -t TEST [options]      both sides in one process\n"
          "       mpirun -n 2 ucx_perftest -t TEST [options]\n"
          "       ucx_perftest --compare A.json B.json   ratios of two results\n"
          "\nTests (-t):\n"
          "  limits         what this machine can do, without the library (implies --self)\n"
          "  audit          the automatic choice of protocol beside each forced one, for tag_lat "
          "or\n                 for the test that a second -t names\n",
          file);
    list_tests(file);
    fputs("\nWhat to measure:\n"
          "  -t TEST        test; with --self the default is the table of limits and tag tests\n"
          "  -s SIZES       message sizes: 8,64,1k or 8:1m (powers of two between)  [8]\n"
          "  -n COUNT       iterations a size  [as many as about a second allows]\n"
          "  -w COUNT       iterations of warm-up  [chosen by time]\n"
          "  -O COUNT       messages in flight in bandwidth and rate tests  [64; gets: 1]\n"
          "  -c CPUS        processors: with --self the two processes', else this one's, one a "
          "thread\n"
          "  -T COUNT       threads, each with its own worker  [1]\n"
          "  -M MODE        single | serialized | multi: thread mode of workers  [single]\n"
          "  -D SEND[,RECV] contig | iov: one piece or four  [contig]\n"
          "  -D WAY         short | bcopy | zcopy: how a transport moves data  [short]\n"
          "  -x TRANSPORT   of am_lat, am_bw, put_lat, put_bw, get and get_bw: mm, cma, ofi, ...\n"
          "  -d DEVICE      of it: memory, or one of a network  [as UCX_NET_DEVICES says]\n"
          "  -m KIND[,KIND] memory of this side and of the other: host, cuda, cuda-managed, "
          "cuda-async,\n"
          "                 cuda-pool, cuda-vmm, cuda-vmm-private, cuda-vmm-pieces, cuda-pinned,\n"
          "                 cuda-registered  [host]\n"
          "  --device N[,N] GPU of this side and of the other; with host memory they only use it  "
          "[0,1]\n"
          "  -H BYTES       header of active messages  [0]\n"
          "  -C             receive with a wildcard tag\n"
          "  -U             receive every message as an unexpected one, by probe\n"
          "  -e peer|none   error mode of the endpoints; none: what the library finds out about a "
          "lost\n                 peer is not heard  [peer]\n"
          "  -E poll|sleep  wait by polling or in the kernel  [poll]\n"
          "  -I             context with the wake-up feature\n"
          "  -z             pass handles of registered buffers\n"
          "  -B             register memory with the NONBLOCK hint\n"
          "  -o             the responder of a one-sided test does not progress\n"
          "  -y             the handler of active messages copies their data\n"
          "  -r recv        streams are received by ucp_stream_recv_nbx\n"
          "  -b FILE        run the tests of a file: a name and options a line, # comments\n"
          "  -V             fill and check every byte (times then include it)\n"
          "  --seed N       seed of the contents  [1]\n"
          "  --quick        fewer sizes and rounds\n"
          "  --rounds N     rounds of each size of the table  [21; --quick: 7]\n"
          "  --timeout S    seconds without progress after which it gives up  [30]\n"
          "\nWhere:\n"
          "  -p PORT        TCP port of the server  [13337]\n"
          "  -6             IPv6, and IPv4 at a server; an IPv6 address is taken without it\n"
          "  -P 0|1         0: server and client even under mpirun  [1]\n"
          "\nOutput:\n"
          "  -f             only final numbers\n"
          "  -v             CSV to stdout\n"
          "  -N             separate thousands\n"
          "  -X             how the library moves messages of each size, before the figures\n"
          "  -q             no notes and no progress\n"
          "  -R LIST        percentiles of latency  [50,90,99,99.9]\n"
          "  --json FILE    results, start-up and run record as JSON; - is stdout\n"
          "  --csv FILE     results as CSV; - is stdout\n"
          "  --md FILE      results and run record as Markdown; - is stdout\n"
          "  --plot FILE    picture, .svg or .png, made by gnuplot\n"
          "  --tolerance X  with --compare and -t audit: ratios above X are worse  [1.1]\n"
          "  -h, --help     this text\n"
          "\nExit: 0 done, 1 failed or worse, 2 usage, 3 not supported by the library, 4 time "
          "limit.\nTransports are chosen by the environment: UCX_TLS, UCX_OFI_PROVIDER.\n",
          file);
}
