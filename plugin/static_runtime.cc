// The end of a C++ runtime that is part of the library (-static-libstdc++). Linked instead of shared_runtime.cc.
#include "plugin/host.h"

namespace __gnu_cxx {
// libstdc++'s own, for leak checkers: frees its reserve of 70 KiB for exceptions without memory.
void __freeres();  // NOLINT(readability-identifier-naming)
}  // namespace __gnu_cxx

namespace cgx::plugin {

// Nothing else frees the reserve, so that each dlopen and dlclose would cost that much.
void releaseRuntime() noexcept { __gnu_cxx::__freeres(); }

}  // namespace cgx::plugin
