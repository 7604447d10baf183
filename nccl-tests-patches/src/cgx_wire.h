// A column with how many times fewer bytes the plugin sent than an exact all-reduce of the same operations would have,
// asked of the plugin that NCCL has loaded into this process (cgxTotals, include/cgx/observe.h). "-": none is loaded,
// or it carried no collective.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>

#include "cgx_options.h"

namespace cgx {

/// As the plugin's struct CgxTotals.
struct Totals {
  uint64_t operations = 0;
  uint64_t inputBytes = 0;
  uint64_t exactBytes = 0;
  uint64_t wireBytes = 0;
};

/// False: not loaded, or too old. Looked up anew each time: NCCL may unload and load the library.
inline bool readTotals(Totals* out) {
  void* library = dlopen("libnccl-net-cgx.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  using Function = int (*)(void*, size_t);
  const auto ask = reinterpret_cast<Function>(dlsym(library, "cgxTotals"));
  const bool done = ask != nullptr && ask(out, sizeof *out) == 0;
  dlclose(library);
  return done;
}

/// The text of the column for what happened between two readings.
inline void wireText(const Totals& before, const Totals& after, char* text, size_t size) {
  const uint64_t wire = after.wireBytes - before.wireBytes;
  const uint64_t exact = after.exactBytes - before.exactBytes;
  if (after.operations <= before.operations || wire == 0 || exact == 0)
    snprintf(text, size, "  %6s", "-");
  else
    snprintf(text, size, "  %5.2fx", static_cast<double>(exact) / static_cast<double>(wire));
}

class WireColumn {
 public:
  static WireColumn& instance() {
    static WireColumn column;
    return column;
  }
  void legend(bool mainThread) {
    if (!options().wire || !mainThread) return;
    printf(
        "# last column: bytes of an exact all-reduce for each byte that the cgx plugin sent from this process, in "
        "place; -: "
        "not by the plugin\n");
  }
  void startRow(bool mainThread) {
    if (options().wire && mainThread && !readTotals(&before_)) before_ = {};
  }
  void endRow(bool mainThread) {
    if (!options().wire || !mainThread) return;
    Totals after;
    if (!readTotals(&after)) after = before_;
    char text[32];
    wireText(before_, after, text, sizeof text);
    printf("%s", text);
  }

 private:
  Totals before_;
};

}  // namespace cgx
