// A stand-in for the driver, libcuda.so.1, with which cuDNN makes plans for a GPU that is not there (tests/cudnn/run).
// cuDNN is given the GPU's properties (hopper_graph.h), selects engines, generates their code and asks
// the driver to compile and load it. Here compilation gives an empty ELF file, and everything that is loaded is the
// same handle, so nothing can be launched. functions.cc has all other functions.
#include <cuda.h>

#include <array>
#include <cstddef>

namespace {

int handle;  // stands for every module, library, kernel and function
alignas(8) std::array<char, 4096> elf{"\177ELF"};

template <class T>
CUresult give(T* out) {
  *out = reinterpret_cast<T>(&handle);
  return CUDA_SUCCESS;
}

// The compiler's functions, found by the calls of cuDNN 9.19 and 9.28: 1 creates a program from code, 3 gives its ELF
// file and the size, 6 destroys it.
int nothing() { return 0; }
int compiled(void*, void*, const void** code, unsigned* bytes) {
  *code = elf.data();
  *bytes = static_cast<unsigned>(elf.size());
  return 0;
}

}  // namespace

extern "C" {
CUresult cuGetExportTable(const void** out, const CUuuid*) {
  static const std::array<void*, 8> table{
      reinterpret_cast<void*>(sizeof(void*) * 8), reinterpret_cast<void*>(&nothing), reinterpret_cast<void*>(&nothing),
      reinterpret_cast<void*>(&compiled),         reinterpret_cast<void*>(&nothing), reinterpret_cast<void*>(&nothing),
      reinterpret_cast<void*>(&nothing),          reinterpret_cast<void*>(&nothing)};
  *out = table.data();
  return CUDA_SUCCESS;
}
CUresult cuGetErrorString(CUresult, const char** text) {
  *text = "an error of the stand-in for the driver";
  return CUDA_SUCCESS;
}
CUresult cuModuleLoadData(CUmodule* out, const void*) { return give(out); }
CUresult cuModuleLoadDataEx(CUmodule* out, const void*, unsigned, CUjit_option*, void**) { return give(out); }
CUresult cuModuleGetFunction(CUfunction* out, CUmodule, const char*) { return give(out); }
CUresult cuLibraryLoadData(CUlibrary* out, const void*, CUjit_option*, void**, unsigned, CUlibraryOption*, void**,
                           unsigned) {
  return give(out);
}
CUresult cuLibraryGetKernel(CUkernel* out, CUlibrary, const char*) { return give(out); }
CUresult cuLibraryGetModule(CUmodule* out, CUlibrary) { return give(out); }
CUresult cuKernelGetFunction(CUfunction* out, CUkernel) { return give(out); }
}
