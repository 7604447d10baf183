// The C++ runtime belongs to the process: nothing to end. Linked instead of static_runtime.cc.
#include "plugin/host.h"

namespace cgx::plugin {

void releaseRuntime() noexcept {}

}  // namespace cgx::plugin
