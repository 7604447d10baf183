// Faults and counters of the memory transport and the fake collective, reached from a test through the symbol
// cgxMemoryControl of the library that they are linked into.
#pragma once

struct CgxMemoryControl {
  bool noDevices = false;  // createSocket fails
  bool stall = false;      // connectors and collective operations stay pending
  bool cut = false;        // the next post on a link or communicator finds it reset
  int listeners = 0;       // alive
  int connectors = 0;      // alive
  int registered = 0;      // regions of collective memory
  int ordinal = -1;        // of the latest communicator
};
