// The list of living communicators and the sum over closed ones.
#include "plugin/totals.h"

#include <mutex>

namespace cgx::plugin {
namespace {

// Trivially destructible on purpose: a tool's thread may still ask while exit() runs destructors.
constinit std::mutex mutex;
constinit Counted* living = nullptr;
constinit CgxTotals closed{};

}  // namespace

Counted::Counted(const collective::Communicator& communicator, int ranks) noexcept
    : communicator_(communicator), ranks_(ranks) {
  const std::lock_guard lock(mutex);
  next_ = living;
  living = this;
}

Counted::~Counted() {
  const std::lock_guard lock(mutex);
  Counted** link = &living;
  while (*link != this) link = &(*link)->next_;
  *link = next_;
  addTo(&closed);
}

void Counted::addTo(CgxTotals* totals) const noexcept {
  const collective::Counters now = communicator_.counters();
  const auto ranks = static_cast<std::uint64_t>(ranks_);
  totals->operations += now.operations;
  totals->inputBytes += now.inputBytes;
  totals->exactBytes += 2 * (ranks - 1) * (now.inputBytes / ranks) + 2 * (ranks - 1) * (now.inputBytes % ranks) / ranks;
  totals->wireBytes += now.wireBytes;
}

CgxTotals Counted::all() noexcept {
  const std::lock_guard lock(mutex);
  CgxTotals totals = closed;
  for (const Counted* counted = living; counted != nullptr; counted = counted->next_) counted->addTo(&totals);
  return totals;
}

}  // namespace cgx::plugin
