// A collective communicator as NCCL's collnet calls see it.
#include "plugin/coll_comm.h"

#include <algorithm>
#include <climits>
#include <string>
#include <utility>

#include "cgx/tuner.h"

namespace cgx::plugin {
namespace {

// NCCL keeps up to 8 steps of 8 groups in flight; the communicator's own window says "ask again" long before.
constexpr std::size_t kRequests = 256;

}  // namespace

collective::ConnectSpec connectSpec(Host& host, int rank, std::span<const transport::Handle> handles) {
  const auto nodes = static_cast<int>(handles.size());
  collective::ConnectSpec spec{.transport = &host.transport(),
                               .handles = handles,
                               .rank = rank,
                               .settings = host.settings(),
                               .problem = host.problem()};
  if (spec.problem.ok() && spec.settings.mode == Mode::Off) spec.problem = Status(Code::Unsupported, "CGX_MODE=off");
  // The tuner keeps such a communicator away from us, but it has no word where the user forces an algorithm.
  spec.exact = spec.settings.bits <= 8 && tuner::surelyNotTheWorld(spec.settings, nodes);
  if (spec.exact)
    CGX_LOG(Info, Coll,
            "communicator of %d nodes, rank %d: exact, as it is not the whole job of %d ranks (CGX_COMMS=world)", nodes,
            rank, spec.settings.worldRanks);
  return spec;
}

CollComm::CollComm(Host& host, std::unique_ptr<collective::Communicator> communicator, int rank, int ranks, int bits)
    : live_(host),
      host_(host),
      rank_(rank),
      ranks_(ranks),
      communicator_(std::move(communicator)),
      counted_(*communicator_, ranks),
      requests_(kRequests),
      statisticsId_(host.statistics().open(*communicator_, rank, ranks, bits)) {
  for (Request& request : requests_) request.comm = this;
}

CollComm::~CollComm() {
  communicator_->close();
  host_.statistics().close(statisticsId_);
}

Answer CollComm::test(void* token, int* done, int* bytes) {
  *done = 0;
  Request* request = RequestPool<Request>::find(token);
  if (request == nullptr) return Answer::badArgument("no request, or one that was reported done before");
  CollComm& comm = *request->comm;
  std::size_t moved = 0;
  const Status status = comm.communicator_->test(request->inner, &moved);
  if (status.isPending()) return {};
  if (status.failed()) return comm.failure(status);  // the request keeps its place: every later test answers the same
  if (bytes != nullptr) *bytes = static_cast<int>(std::min<std::size_t>(moved, INT_MAX));
  *done = 1;
  comm.requests_.give(*request);
  return {};
}

Answer CollComm::failure(const Status& status) {
  Answer answer(Status(status).within("rank " + std::to_string(rank_) + " of " + std::to_string(ranks_)));
  if (reported_.exchange(true)) return std::move(answer).repeated();
  host_.abortIfAsked(answer.status);
  return answer;
}

}  // namespace cgx::plugin
