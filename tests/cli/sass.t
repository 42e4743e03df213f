#!/bin/sh
# tests/sass/run with a disassembler that prints a made-up kernel: each limit, and each opcode that is missing or occurs
# too often, is a violation.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"
cat >sass <<'END'
 Function _ZN3fp85quant4castI4Bf16EEvPKT_:
  REG:40 STACK:8 SHARED:1024 LOCAL:0 CONSTANT[0]:616 TEXTURE:0 SURFACE:0 SAMPLER:0
		Function : _ZN3fp85quant4castI4Bf16EEvPKT_
        /*0000*/                   LDC R1, c[0x0][0x28] ;    /* 0x00000a00ff017b82 */
                                                             /* 0x000fe20000000800 */
        /*0008*/               @P1 BRA 0x50 ;     /* 0x0 */
        /*0010*/                   LDG.E.128 R4, desc[UR4][R4.64] ;     /* 0x0000000404047981 */
        /*0020*/                   F2FP.SATFINITE.E4M3.F32.PACK_AB_MERGE_C R4, R4, R5, RZ ;     /* 0x0 */
        /*0030*/              @!P0 STG.E.64 desc[UR4][R2.64], R4 ;     /* 0x0 */
        /*0040*/               @P0 BRA 0x10 ;     /* 0x0 */
        /*0050*/                   EXIT ;     /* 0x0 */
        /*0060*/                   BRA 0x60;     /* 0x0 */
        /*0070*/                   NOP;     /* 0x0 */
END
printf '#!/bin/sh\ncat "%s/sass"\n' "$PWD" >cuobjdump
chmod +x cuobjdump
mkdir -p build/lib/quant/src
echo .nv_fatbin >build/lib/quant/src/cuda.o
export CUOBJDUMP="$PWD/cuobjdump" BUDGETS="$PWD/budgets"
check() { # ROW: runs the check with this row
  echo "$1" >budgets
  "$SRC/tests/sass/run" "$PWD/build"
}
ok 'a kernel within its budget' check 'cast<* 40 8 1024 8 4 3 8:4 LDG.128,STG.64,F2FP.E4M3'
cp out table
says 'prints a line for each kernel' '^ +40 +8 +1024 +8 +4 +3 +3\.0 +226 +1 +0 +1 +cast<Bf16>$' cat table
ok 'a kernel of which no elements are counted' check 'cast<* - - - - 4 - - -'
cp out table
says 'has no instructions for eight of them' '^ +40 +8 +1024 +8 +4 +3 +- +- +1 +0 +1 +cast<Bf16>$' cat table
check 'cast<* - - - - 4 - 16:2 -' >table
says 'without a limit of the path the loop counts' ' 3 +2\.0 +113 +1 +0 +1 +cast<Bf16>$' cat table
for limit in 'registers 40: cast<* 39 - - - - - - -' 'local 8: cast<* - 7 - - - - - -' 'shared 1024: cast<* - - 1023 - - - - -' \
  'all 8: cast<* - - - 7 - - - -' 'loop 4: cast<* - - - - 3 - - -' 'path 3: cast<* - - - - - 2 - -'; do
  says "the limit of ${limit%% *}" "^cast<Bf16>: ${limit%%:*}, at most [0-9]+ allowed\$" check "${limit#*: }"
done
status 'a violation is status 1' 1 check 'cast<* 39 - - - - - - -'
says 'a missing opcode' '^cast<Bf16>: no STG.128$' check 'cast<* - - - - - - - STG.128'
ok 'opcodes as often as allowed' check 'cast<* - - - - - - - STG.U16<=0,STG.64<=1'
says 'an opcode more often than allowed' '^cast<Bf16>: 1 STG.64, at most 0 allowed$' check 'cast<* - - - - - - - STG.64<=0'
says 'a kernel without a row' 'cast<Bf16>: no row of .*budgets matches' check 'norm<* - - - - - - - -'
says 'a row without a kernel' 'budgets: no kernel matches norm<\*' check 'norm<* - - - - - - - -'
echo 'cast<* 40 - - - - - - -' >first
echo 'cast<* 39 - - - - - - -' >budgets
ok 'the first of several tables counts' env BUDGETS="$PWD/first $PWD/budgets" "$SRC/tests/sass/run" "$PWD/build"
says 'in their order' '^cast<Bf16>: registers 40, at most 39 allowed$' env BUDGETS="$PWD/budgets $PWD/first" "$SRC/tests/sass/run" "$PWD/build"
says 'a row with too few columns' 'budgets:1: 2 columns instead of 9' check 'norm<* -'
rm build/lib/quant/src/cuda.o
status 'nothing to check is status 2' 2 check 'cast<* - - - - - - - -'
says 'nothing to check' 'no objects with device code: build with CUDA=1' check 'cast<* - - - - - - - -'
done_testing
