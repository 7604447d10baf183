// Faults and counters of the memory transport, reached from a test through the symbol cgxMemoryControl of the library
// it is linked into.
#pragma once

struct CgxMemoryControl {
  bool noDevices = false;  // createSocket fails
  bool stall = false;      // connectors stay pending
  bool cut = false;        // the next post on a link finds it reset
  int listeners = 0;       // alive
  int connectors = 0;      // alive
};
