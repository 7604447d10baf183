// The exported functions beside NCCL's tables: counters, for tools. Know no ABI version.
#include "cgx/observe.h"

#include <algorithm>
#include <cstring>

#include "plugin/coll_comm.h"
#include "plugin/totals.h"

extern "C" [[gnu::visibility("default")]] int cgxCounters(void* collComm, CgxCounters* out) {
  if (collComm == nullptr || out == nullptr) return 1;
  const cgx::collective::Counters now = static_cast<cgx::plugin::CollComm*>(collComm)->communicator().counters();
  *out = {now.operations, now.inputBytes, now.wireBytes, now.messages, now.zeroTiles, now.rawTiles};
  return 0;
}

extern "C" [[gnu::visibility("default")]] int cgxTotals(CgxTotals* out, size_t size) {
  if (out == nullptr || size == 0) return 1;
  const CgxTotals now = cgx::plugin::Counted::all();
  std::memset(out, 0, size);
  std::memcpy(out, &now, std::min(size, sizeof now));
  return 0;
}
