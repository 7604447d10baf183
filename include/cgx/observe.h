// What tools may ask a loaded plugin beside NCCL's ABI: one exported C function that reads a communicator's counters.
// Knows no NCCL types; plain C, so that any host language can bind it.
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/// Since connect. All counts are of this rank alone.
struct CgxCounters {
  uint64_t operations; /* collectives completed */
  uint64_t inputBytes; /* of the user's data in them */
  uint64_t wireBytes;  /* handed to the transport, message headers included */
  uint64_t messages;
  uint64_t zeroTiles;
  uint64_t rawTiles;
};

/// In the plugin, found with dlsym: fills *out for a collComm that collnet's connect returned and that is not closed
/// yet. From any thread. 0: done; not 0: bad argument.
int cgxCounters(void* collComm, struct CgxCounters* out);
typedef int (*CgxCountersFunction)(void* collComm, struct CgxCounters* out);

#ifdef __cplusplus
}
#endif
