// Which signals threads of the library leave to the host program. Knows no threads.
#pragma once

#include <signal.h>

#include <initializer_list>

namespace cgx {

/// Every signal that another thread could take as well: the host program's handlers must not run on a thread that it
/// does not know. Signals of a fault stay deliverable: the kernel kills a process whose thread faults with its signal
/// blocked, past every crash reporter.
inline sigset_t signalsOfTheHost() noexcept {
  sigset_t all;
  sigfillset(&all);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT, SIGSYS}) sigdelset(&all, fault);
  return all;
}

}  // namespace cgx
