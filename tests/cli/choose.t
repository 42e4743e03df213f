#!/bin/sh
# tests/gpu/portable/choose: the build of the device bundle that suits a driver, for which a library here stands.
# shellcheck source=tests/cli/lib.sh
. "${SRC:-.}/tests/cli/lib.sh"
cat >driver.c <<'C'
#include <stdlib.h>
int cuDriverGetVersion(int *version) {
  *version = atoi(getenv("DRIVER"));
  return *version == 0 ? 3 : 0; /* CUDA_ERROR_NOT_INITIALIZED */
}
C
cc -shared -fPIC -o libcuda.so.1 driver.c
mkdir -p both/build-cuda13 both/build-cuda12 one/build-cuda13
choose() { # BUNDLE VERSION
  LD_LIBRARY_PATH=$PWD DRIVER=$2 "$SRC/tests/gpu/portable/choose" "$1" >out 2>err
}
while read -r version folder text; do
  choose both "$version"
  is "CUDA $version: the folder and what is said" "$? $(cat out) $(cat err)" "0 $folder device bundle: the driver supports CUDA $text is used"
done <<'END'
13010 build-cuda13 13.1: the build with CUDA 13
13000 build-cuda13 13.0: the build with CUDA 13
12090 build-cuda12 12.9: the build with CUDA 12.9
12080 build-cuda12 12.8: the build with CUDA 12.9
12000 build-cuda12 12.0: the build with CUDA 12.9
END
refused() { # TEXT: what is said of a driver that runs no build
  echo "1  device bundle: the driver supports CUDA $1: install NVIDIA's driver 580 or newer for CUDA 13"
}
choose both 11080
is "an older driver is refused in one line that names the drivers" "$? $(cat out) $(cat err)" \
  "$(refused '11.8, which runs no build of this bundle'), or 525 or newer for CUDA 12.9"
choose one 12080
is "a bundle of one build names the driver for it" "$? $(cat out) $(cat err)" "$(refused '12.8, which runs no build of this bundle')"
choose both 0
is "a driver that does not answer counts as none" "$? $(cat out) $(grep -c 'no GPU can be used: install' err) $(wc -l <err)" "0 build-cuda13 1 1"
done_testing
