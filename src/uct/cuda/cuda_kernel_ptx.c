/* Halyard: cuda: the kernel that copies, in the language of the driver's compiler.
 *
 * A row of blocks for each copy. halyard_counts: blocks that have started, those that have ended
 * (32 bits each), and the number up to which kernels are recalled. The last block sets the counts
 * back and tells the host the kernel's number. batch: uct_cuda_kernel_params_t.
 *
 * Source: PTX ISA 6.0 (memory consistency model: fence.sc), for compute capability 7.0 on.
 *
 * SPDX-License-Identifier: BSD-3-Clause
 */
#include "config.h"

#include <uct/cuda/cuda_kernel.h>

const char uct_cuda_kernel_ptx[] =
    ".version 6.0\n"
    ".target sm_70\n"
    ".address_size 64\n"
    ".visible .global .align 8 .b64 halyard_counts[2];\n"
    ".visible .entry halyard_copy(.param .align 8 .b8 batch[3088])\n"
    "{\n"
    "  .reg .pred %p;\n"
    "  .reg .b16  %b;\n"
    "  .reg .b32  %me, %last, %is_off, %x, %y, %n, %v<16>;\n"
    "  .reg .b64  %number, %to, %from, %length, %head, %end, %i, %step, %first, %a, %t;\n"
    "  .shared .align 4 .u32 is_off;\n"

    /* one thread: counts the block, looks whether the kernel is recalled */
    "  mov.u32        %me, %tid.x;\n"
    "  ld.param.u64   %number, [batch + 8];\n"
    "  mov.u32        %x, %nctaid.x;\n"
    "  mov.u32        %y, %nctaid.y;\n"
    "  mad.lo.u32     %last, %x, %y, -1;\n"
    "  setp.ne.u32    %p, %me, 0;\n"
    "  @%p bra        wait;\n"
    "  red.global.add.u32 [halyard_counts], 1;\n"
    "  fence.sc.sys;\n"
    "  ld.relaxed.sys.global.u64 %t, [halyard_counts + 8];\n"
    "  setp.le.u64    %p, %number, %t;\n"
    "  selp.u32       %is_off, 1, 0, %p;\n"
    "  st.shared.u32  [is_off], %is_off;\n"
    "wait:\n"
    "  bar.sync       0;\n"
    "  ld.shared.u32  %is_off, [is_off];\n"
    "  setp.ne.u32    %p, %is_off, 0;\n"
    "  @%p bra        over;\n"

    /* this row's copy; the thread's place among those of the row */
    "  mov.u32        %y, %ctaid.y;\n"
    "  mov.b64        %a, batch;\n"
    "  mul.wide.u32   %t, %y, 24;\n"
    "  add.u64        %a, %a, %t;\n"
    "  ld.param.u64   %to, [%a + 16];\n"
    "  ld.param.u64   %from, [%a + 24];\n"
    "  ld.param.u64   %length, [%a + 32];\n"
    "  mov.u32        %y, %ctaid.x;\n"
    "  mov.u32        %n, %ntid.x;\n"
    "  mad.lo.u32     %y, %y, %n, %me;\n"
    "  cvt.u64.u32    %first, %y;\n"
    "  mul.wide.u32   %step, %x, %n;\n"

    /* head: bytes before the first 16 that lie at a multiple of 16; all where the two places
       differ in that. end: behind the last 16 */
    "  neg.s64        %head, %to;\n"
    "  and.b64        %head, %head, 15;\n"
    "  min.u64        %head, %head, %length;\n"
    "  xor.b64        %t, %to, %from;\n"
    "  and.b64        %t, %t, 15;\n"
    "  setp.ne.u64    %p, %t, 0;\n"
    "  selp.b64       %head, %length, %head, %p;\n"
    "  sub.u64        %end, %length, %head;\n"
    "  and.b64        %end, %end, -16;\n"
    "  add.u64        %end, %end, %head;\n"

    "  mov.u64        %i, %first;\n"
    "bytes:\n"
    "  setp.ge.u64    %p, %i, %head;\n"
    "  @%p bra        body;\n"
    "  add.u64        %a, %from, %i;\n"
    "  ld.global.u8   %b, [%a];\n"
    "  add.u64        %a, %to, %i;\n"
    "  st.global.u8   [%a], %b;\n"
    "  add.u64        %i, %i, %step;\n"
    "  bra            bytes;\n"

    /* four loads under way before the first store */
    "body:\n"
    "  shl.b64        %i, %first, 4;\n"
    "  add.u64        %i, %i, %head;\n"
    "  shl.b64        %step, %step, 4;\n"
    "four:\n"
    "  mad.lo.u64     %t, %step, 3, %i;\n"
    "  setp.ge.u64    %p, %t, %end;\n"
    "  @%p bra        one;\n"
    "  add.u64        %a, %from, %i;\n"
    "  ld.global.v4.b32 {%v0, %v1, %v2, %v3}, [%a];\n"
    "  add.u64        %a, %a, %step;\n"
    "  ld.global.v4.b32 {%v4, %v5, %v6, %v7}, [%a];\n"
    "  add.u64        %a, %a, %step;\n"
    "  ld.global.v4.b32 {%v8, %v9, %v10, %v11}, [%a];\n"
    "  add.u64        %a, %a, %step;\n"
    "  ld.global.v4.b32 {%v12, %v13, %v14, %v15}, [%a];\n"
    "  add.u64        %a, %to, %i;\n"
    "  st.global.v4.b32 [%a], {%v0, %v1, %v2, %v3};\n"
    "  add.u64        %a, %a, %step;\n"
    "  st.global.v4.b32 [%a], {%v4, %v5, %v6, %v7};\n"
    "  add.u64        %a, %a, %step;\n"
    "  st.global.v4.b32 [%a], {%v8, %v9, %v10, %v11};\n"
    "  add.u64        %a, %a, %step;\n"
    "  st.global.v4.b32 [%a], {%v12, %v13, %v14, %v15};\n"
    "  add.u64        %i, %t, %step;\n"
    "  bra            four;\n"
    "one:\n"
    "  setp.ge.u64    %p, %i, %end;\n"
    "  @%p bra        tail;\n"
    "  add.u64        %a, %from, %i;\n"
    "  ld.global.v4.b32 {%v0, %v1, %v2, %v3}, [%a];\n"
    "  add.u64        %a, %to, %i;\n"
    "  st.global.v4.b32 [%a], {%v0, %v1, %v2, %v3};\n"
    "  add.u64        %i, %i, %step;\n"
    "  bra            one;\n"

    /* less than 16, or nothing where all were bytes: a thread each */
    "tail:\n"
    "  add.u64        %i, %end, %first;\n"
    "  setp.ge.u64    %p, %i, %length;\n"
    "  @%p bra        over;\n"
    "  add.u64        %a, %from, %i;\n"
    "  ld.global.u8   %b, [%a];\n"
    "  add.u64        %a, %to, %i;\n"
    "  st.global.u8   [%a], %b;\n"

    /* one thread again, when all of the block are here */
    "over:\n"
    "  bar.sync       0;\n"
    "  setp.ne.u32    %p, %me, 0;\n"
    "  @%p bra        out;\n"
    "  fence.sc.sys;\n"
    "  atom.global.inc.u32 %n, [halyard_counts + 4], %last;\n"
    "  setp.ne.u32    %p, %n, %last;\n"
    "  @%p bra        out;\n"
    "  mov.u32        %n, 0;\n"
    "  st.global.u32  [halyard_counts], %n;\n"
    "  fence.sc.sys;\n"
    "  ld.param.u64   %a, [batch];\n"
    "  st.relaxed.sys.global.u64 [%a], %number;\n"
    "out:\n"
    "  ret;\n"
    "}\n";
