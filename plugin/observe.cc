// The exported function beside NCCL's tables: a communicator's counters, for tools. Knows no ABI version.
#include "cgx/observe.h"

#include "plugin/coll_comm.h"

extern "C" [[gnu::visibility("default")]] int cgxCounters(void* collComm, CgxCounters* out) {
  if (collComm == nullptr || out == nullptr) return 1;
  const cgx::collective::Counters now = static_cast<cgx::plugin::CollComm*>(collComm)->communicator().counters();
  *out = {now.operations, now.inputBytes, now.wireBytes, now.messages, now.zeroTiles, now.rawTiles};
  return 0;
}
