// What tools may ask a loaded plugin beside NCCL's ABI: exported C functions that read a communicator's counters, and
// the process's. Knows no NCCL types; plain C, so that any host language can bind it.
#pragma once

#include <stddef.h>
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

/// Of all collective communicators of the process together, closed ones included, since the library was loaded. Grows
/// at its end only.
struct CgxTotals {
  uint64_t operations; /* collectives completed */
  uint64_t inputBytes; /* of the user's data in them */
  uint64_t exactBytes; /* what an exact all-reduce of them had sent: 2 (ranks - 1) / ranks of inputBytes */
  uint64_t wireBytes;  /* handed to the transport, message headers included */
};

/// In the plugin, found with dlsym: fills the first `size` bytes of *out, as far as this plugin knows them; the rest is
/// zero. From any thread. 0: done; not 0: bad argument.
int cgxTotals(struct CgxTotals* out, size_t size);
typedef int (*CgxTotalsFunction)(struct CgxTotals* out, size_t size);

#ifdef __cplusplus
}
#endif
