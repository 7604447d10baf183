#include "perf_rank.h"

#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>

#include "check.h"
#include "numbers.h"
#include "plugin_library.h"
#include "rendezvous.h"
#include "report.h"
#include "session.h"
#include "sizes.h"

namespace cgx::tool {
namespace {

using Clock = std::chrono::steady_clock;
constexpr const char* kDefaultSizes = "1K:16M:x4";
constexpr int kWrong = 1;
constexpr int kCannotRun = 2;

/// What each rank reports of a row; travels between processes of one program.
struct Measured {
  double timeUs = 0;
  std::uint64_t wireBytes = 0;
  std::uint64_t hasWire = 0;
  std::uint64_t hashLow = 0;
  std::uint64_t hashHigh = 0;
};

class Rank {
 public:
  Rank(const PerfOptions& options, const Placement& placement, Rendezvous& rendezvous)
      : options_(options), place_(placement), rendezvous_(rendezvous), progress_(placement.rank == 0) {}

  /// Ok even when results are wrong: see failed().
  Status run();
  bool failed() const { return wrong_; }

 private:
  Status prepare();
  Status agreeOnRows();
  Status measureExact();
  Status measureRow(std::size_t index);
  Status load(const Row& row);
  Result<Measured> repeat(const Row& row, int warmup, int iterations, const std::string& what);
  Result<std::vector<Measured>> share(const Measured& mine);
  Status judge(const Row& row, const std::vector<Measured>& all, std::size_t index);
  Status openSession(int bits);
  void printPreamble() const;

  const PerfOptions& options_;
  const Placement& place_;
  Rendezvous& rendezvous_;
  Progress progress_;
  Settings settings_;
  std::vector<Row> rows_;
  std::unique_ptr<Session> session_;
  std::vector<std::optional<std::size_t>> exactWire_;  // by row
  std::vector<RowResult> results_;
  bool wrong_ = false;
};

std::size_t bytesOf(const Row& row) { return row.count * codec::bytesOf(row.dtype); }

void setVariable(const char* name, const std::string& value) { (void)::setenv(name, value.c_str(), 1); }

Status Rank::run() {
  CGX_TRY(prepare());
  CGX_TRY(agreeOnRows());
  if (settings_.bits != codec::kExactBits) CGX_TRY(measureExact());
  CGX_TRY(openSession(settings_.bits));
  if (place_.rank == 0) printPreamble();
  for (std::size_t i = 0; i < rows_.size(); ++i) CGX_TRY(measureRow(i));
  Result<std::vector<std::string>> all = rendezvous_.allGather({});  // nobody closes before everybody has finished
  session_.reset();
  if (!all.ok()) return all.status();
  if (place_.rank == 0 && !options_.json.empty()) CGX_TRY(writeJson(options_.json, results_));
  return {};
}

Status Rank::prepare() {
  if (options_.bits != 0) setVariable("CGX_BITS", std::to_string(options_.bits));
  if (options_.exact) setVariable("CGX_BITS", std::to_string(codec::kExactBits));
  if (!options_.rounding.empty()) setVariable("CGX_ROUNDING", options_.rounding);
  // As a job would be started: a plugin that is not named carries exact net traffic only.
  setVariable("NCCL_NET_PLUGIN", options_.plugin.empty() ? defaultPluginPath() : options_.plugin);
  setVariable("NCCL_COLLNET_ENABLE", "1");
  // What is measured is what was asked for on the command line, whatever job or launcher this runs in.
  setVariable("CGX_MODE", "always");
  setVariable("CGX_COMMS", "all");
  CGX_TRY(loadEnvironment(settings_, nullptr));
  Result<std::vector<Row>> rows = rowsOf(options_, place_.ranks);
  if (!rows.ok()) return rows.status();
  rows_ = std::move(rows).value();
  exactWire_.resize(rows_.size());
  return {};
}

/// Directories may lie elsewhere on each machine and the width may come from the environment, so what counts is what
/// was found.
Status Rank::agreeOnRows() {
  std::ostringstream text;
  text << settings_.bits << " bits; ";
  for (const Row& row : rows_) text << row.name << " " << row.count << " " << nameOf(row.dtype) << "; ";
  Result<std::vector<std::string>> all = rendezvous_.allGather(text.str());
  if (!all.ok()) return all.status();
  for (std::size_t rank = 0; rank < all->size(); ++rank)
    if (all.value()[rank] != all->front())
      return Status::invalid("rank " + std::to_string(rank) + " found other things to do (" + all.value()[rank] +
                             ") than rank 0 (" + all->front() + ")");
  return {};
}

Status Rank::openSession(int bits) {
  session_.reset();
  // Our own name of the setting decides over its alias.
  setVariable("CGX_BITS", std::to_string(bits));
  Result<std::unique_ptr<Session>> session = Session::open(options_.plugin, rendezvous_, place_.rank, place_.ranks);
  if (!session.ok()) return session.status();
  session_ = std::move(session).value();
  return {};
}

/// What the same input costs in exact mode: a plugin loaded anew with CGX_BITS=32, one iteration a row.
Status Rank::measureExact() {
  CGX_TRY(openSession(codec::kExactBits));
  if (!session_->counters()) return {};
  for (std::size_t i = 0; i < rows_.size(); ++i) {
    CGX_TRY(load(rows_[i]));
    Result<Measured> mine = repeat(rows_[i], 0, 1, "exact mode, row " + std::to_string(i + 1));
    if (!mine.ok()) return mine.status();
    Result<std::vector<Measured>> all = share(mine.value());
    if (!all.ok()) return all.status();
    std::size_t most = 0;
    for (const Measured& one : all.value()) most = std::max<std::size_t>(most, one.wireBytes);
    exactWire_[i] = most;
  }
  return {};
}

Status Rank::load(const Row& row) {
  CGX_TRY(session_->prepareBuffers(bytesOf(row)));
  return readElements(row, place_.rank, 0, {session_->send(), bytesOf(row)});
}

Result<Measured> Rank::repeat(const Row& row, int warmup, int iterations, const std::string& what) {
  Measured mine;
  Clock::time_point start;
  std::optional<CgxCounters> before;
  for (int i = -warmup; i < iterations; ++i) {
    if (i == 0) {
      Result<std::vector<std::string>> all = rendezvous_.allGather({});  // all start together
      if (!all.ok()) return all.status();
      before = session_->counters();
      start = Clock::now();
    }
    CGX_TRY(session_->allReduce(row.count, row.dtype));
    progress_.show(what + " of " + std::to_string(rows_.size()) + ", " + sizeText(bytesOf(row)) + ", iteration " +
                   std::to_string(i + warmup + 1) + " of " + std::to_string(warmup + iterations));
  }
  mine.timeUs = std::chrono::duration<double, std::micro>(Clock::now() - start).count() / iterations;
  // A rank's last frames may still be queued in the plugin, so the count is read when all are done.
  Result<std::vector<std::string>> all = rendezvous_.allGather({});
  if (!all.ok()) return all.status();
  const std::optional<CgxCounters> after = session_->counters();
  if (before && after) {
    mine.hasWire = 1;
    mine.wireBytes = (after->wireBytes - before->wireBytes) / static_cast<std::uint64_t>(iterations);
  }
  const XXH128_hash_t hash = XXH3_128bits(session_->recv(), bytesOf(row));
  mine.hashLow = hash.low64;
  mine.hashHigh = hash.high64;
  return mine;
}

Result<std::vector<Measured>> Rank::share(const Measured& mine) {
  Result<std::vector<std::string>> all = rendezvous_.allGather({reinterpret_cast<const char*>(&mine), sizeof mine});
  if (!all.ok()) return all.status();
  std::vector<Measured> measured(all->size());
  for (std::size_t i = 0; i < measured.size(); ++i) {
    if (all.value()[i].size() != sizeof(Measured))
      return Status::remote("rank " + std::to_string(i) + " runs another version");
    std::memcpy(&measured[i], all.value()[i].data(), sizeof(Measured));
  }
  return measured;
}

Status Rank::measureRow(std::size_t index) {
  const Row& row = rows_[index];
  CGX_TRY(load(row));
  Result<Measured> mine = repeat(row, options_.warmup, options_.iters, "row " + std::to_string(index + 1));
  if (!mine.ok()) return mine.status();
  Result<std::vector<Measured>> all = share(mine.value());
  if (!all.ok()) return all.status();
  if (place_.rank == 0) CGX_TRY(judge(row, all.value(), index));
  return {};
}

/// Rank 0 checks its own result; that the others have the same one is what the hashes say.
Status Rank::judge(const Row& row, const std::vector<Measured>& all, std::size_t index) {
  RowResult result;
  result.name = row.name;
  result.bytes = bytesOf(row);
  result.count = row.count;
  result.dtype = row.dtype;
  result.bits = settings_.bits;
  result.ranks = place_.ranks;
  result.identical = true;
  std::size_t wire = 0;
  for (const Measured& one : all) {
    result.timeUs = std::max(result.timeUs, one.timeUs);
    wire = std::max<std::size_t>(wire, one.wireBytes);
    result.identical = result.identical && one.hashLow == all.front().hashLow && one.hashHigh == all.front().hashHigh;
  }
  if (all.front().hasWire != 0) {
    result.wireBytes = wire;
    const std::size_t exact = exactWire_[index].value_or(wire);  // without a pass of its own this is exact mode
    if (wire > 0) result.ratio = static_cast<double>(exact) / static_cast<double>(wire);
  }
  Result<Verdict> verdict =
      check(row, place_.ranks, {settings_.bits, settings_.rounding}, session_->recv(), [&](double share) {
        progress_.show("row " + std::to_string(index + 1) + ": checking, " +
                       std::to_string(static_cast<int>(100 * share)) + " %");
      });
  if (!verdict.ok()) return verdict.status();
  result.nmse = verdict->nmse;
  result.broken = verdict->broken;
  result.firstBroken = verdict->firstBroken;
  progress_.clear();
  printTableRow(result);
  wrong_ = wrong_ || !result.good();
  results_.push_back(std::move(result));
  return {};
}

void Rank::printPreamble() const {
  std::printf("# cgx perf %s: all-reduce, sum, %d ranks (%s), interface %s, %s, %d warm-up and %d timed iterations\n",
              CGX_VERSION, place_.ranks, place_.origin.c_str(), session_->device().c_str(),
              settings_.bits == codec::kExactBits
                  ? "exact"
                  : (std::to_string(settings_.bits) + " bits, rounding " +
                     (settings_.rounding == Rounding::Nearest ? "nearest" : "stochastic"))
                        .c_str(),
              options_.warmup, options_.iters);
  printTableHead(!rows_.front().name.empty());
}

int tell(int rank, const Status& status) {
  std::fprintf(stderr, "cgx perf: rank %d: %s\n", rank, status.text().c_str());
  return kCannotRun;
}

}  // namespace

Result<std::vector<Row>> rowsOf(const PerfOptions& options, int ranks) {
  const codec::DType* dtype = dtypeByName(options.dtype);
  if (options.gradients.empty())
    return syntheticRows(options.sizes.empty() ? kDefaultSizes : options.sizes,
                         dtype != nullptr ? *dtype : codec::DType::F32);
  std::vector<Row> all;
  for (const std::string& directory : options.gradients) {
    Result<std::vector<Row>> rows = gradientRows(directory, ranks, dtype);
    if (!rows.ok()) return rows.status();
    for (Row& row : rows.value()) all.push_back(std::move(row));
  }
  return all;
}

int runRank(const PerfOptions& options, const Placement& placement) {
  setPluginLog("cgx perf", placement.rank, options.verbose);
  Meeting meeting{placement.rank,     placement.ranks,      placement.host,        placement.port,
                  placement.listenFd, agreementOf(options), options.timeoutSeconds};
  Result<std::unique_ptr<Rendezvous>> rendezvous = meet(meeting);
  if (!rendezvous.ok()) return tell(placement.rank, rendezvous.status());
  Rank rank(options, placement, *rendezvous.value());
  if (const Status status = rank.run(); !status.ok()) {
    const std::optional<Status> text = rendezvous.value()->giveUp(status);
    if (text) (void)tell(placement.rank, *text);
    return kCannotRun;
  }
  if (rank.failed()) std::fprintf(stderr, "cgx perf: results are wrong (see the table)\n");
  return rank.failed() ? kWrong : 0;
}

}  // namespace cgx::tool
