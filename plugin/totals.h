// What all collective communicators of the process have done, living and closed, for tools that hold none of them.
// Knows counters only.
#pragma once

#include "cgx/collective.h"
#include "cgx/observe.h"

namespace cgx::plugin {

/// Counts a communicator for as long as this lives, which must be no longer than the communicator; what it did stays in
/// the totals afterwards. Not on the data path: counters are read when somebody asks.
class Counted {
 public:
  Counted(const collective::Communicator& communicator, int ranks) noexcept;
  ~Counted();
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

  /// Of the process since the library was loaded. From any thread.
  static CgxTotals all() noexcept;

 private:
  void addTo(CgxTotals* totals) const noexcept;

  const collective::Communicator& communicator_;
  const int ranks_;
  Counted* next_ = nullptr;
};

}  // namespace cgx::plugin
