// The scenarios. Each reports through Rank; none waits without a deadline.
#include "support/nccl_host/coll_scenarios.h"

#include <signal.h>

#include <algorithm>

namespace cgx::host {
namespace {

bool meet(Rank& rank) { return rank.barrier(1, rank.everyone(), rank.limits().operationSeconds); }

}  // namespace

Body stalePadding(CommOptions options, Fill padding, Bound bound, bool inject) {
  return [=](Rank& rank) {
    CollComm comm(rank, options);
    if (!comm.setUp()) return;
    const std::size_t slots = comm.slotStride() * 8;
    std::vector<OpSpec> ops;
    for (const ncclDataType_t dirty : {ncclFloat32, ncclBfloat16, ncclFloat16}) {
      for (const ncclDataType_t dtype : {ncclFloat32, ncclFloat16, ncclBfloat16}) {
        if (!inject) ops.push_back({.dtype = dirty, .count = slots / bytesOf(dirty), .fill = padding, .verify = false});
        for (const std::size_t count : {250UL, 513UL, 20000UL})
          ops.push_back({.dtype = dtype, .count = count, .inject = inject, .padding = padding, .bound = bound});
      }
      if (inject) break;
    }
    runOperations(comm, ops);
    meet(rank);
  };
}

Body twoCommunicators(CommOptions options, std::vector<OpSpec> operations, std::vector<int> members) {
  return [=](Rank& rank) {
    CommOptions second = options;
    second.members = members;
    second.commId = options.commId + 1;
    second.room = options.room + 1;
    const bool inBoth = std::find(members.begin(), members.end(), rank.rank()) != members.end();
    CollComm world(rank, options);
    CollComm part(rank, second);
    if (!world.open() || (inBoth && !part.open())) return;
    world.beginConnect();
    if (inBoth) part.beginConnect();
    if (world.finishConnect() != Connected::Yes || (inBoth && part.finishConnect() != Connected::Yes)) return;
    if (!world.registerStaging() || (inBoth && !part.registerStaging())) return;
    std::thread other([&] {
      if (inBoth) runOperations(part, operations, 5000);
    });
    runOperations(world, operations);
    other.join();
    meet(rank);
    part.close();
    if (inBoth) runOperations(world, operations, 9000);  // the end of one is nothing to the other
    if (!inBoth) runOperations(world, operations, 9000);
    meet(rank);
  };
}

Body splitShared(CommOptions options, std::vector<OpSpec> operations) {
  return [=](Rank& rank) {
    CollComm parent(rank, options);
    if (!parent.setUp()) return;
    for (int round = 0; round < 2; ++round) {
      const auto child = parent.split(options.commId + 10 + static_cast<std::uint64_t>(round));
      if (!child) return;
      for (std::size_t i = 0; i < operations.size(); ++i) {
        const auto number = static_cast<std::uint64_t>(round) * 1000 + i;
        if (!runOperations(parent, {operations[i]}, number) || !runOperations(*child, {operations[i]}, 500 + number))
          return;
      }
      child->close();
    }
    runOperations(parent, operations, 7000);
    meet(rank);
  };
}

Body abortInFlight(CommOptions options, OpSpec operation) {
  return [=](Rank& rank) {
    CollComm comm(rank, options);
    if (!comm.setUp()) return;
    if (!runOperations(comm, {{.count = 5000, .verify = false}})) return;
    CollOp op(comm, operation, 1);
    comm.progress().run([&] {
      const auto until = Clock::now() + std::chrono::milliseconds(2 * rank.rank());
      op.step();
      op.step();
      while (Clock::now() < until) op.step();
    });
    if (!op.failed()) op.abandon();
    comm.close();  // rank after rank, nobody waits for anybody
    meet(rank);
  };
}

Body failingConnect(CommOptions options, int who, ConnectAs how) {
  return [=](Rank& rank) {
    CommOptions first = options;
    first.mayFail = true;
    if (rank.rank() == who) first.connectAs = how;
    {
      CollComm comm(rank, first);
      if (!comm.open()) return;
      const Connected connected = comm.connect();
      // A rank that only waits to be dialled may not need the handles that were overwritten.
      if (connected == Connected::Yes && how == ConnectAs::Skips)
        rank.report(Violation::ConnectNotUnanimous, "connected although rank " + std::to_string(who) + " could not");
    }
    if (how == ConnectAs::Dies || !meet(rank)) return;
    CommOptions second = options;
    second.commId += 1;
    second.room += 1;
    CollComm comm(rank, second);
    if (!comm.setUp()) return;
    runOperations(comm, {{.count = 5000, .bound = quantised(2)}});
    meet(rank);
  };
}

Body peerDies(CommOptions options, int who, double seconds) {
  return [=](Rank& rank) {
    CollComm comm(rank, options);
    if (!comm.setUp()) return;
    if (!runOperations(comm, {{.count = 5000, .verify = false}})) return;
    CollOp op(comm, {.count = 1000000, .verify = false}, 1);
    if (rank.rank() == who) {
      comm.progress().run([&] {
        op.step();
        raise(SIGKILL);
      });
    }
    comm.progress().run([&] {
      const auto start = Clock::now();
      while (!op.done() && Seconds(Clock::now() - start).count() < seconds) op.step();
    });
    if (!op.failed())
      rank.report(
          op.done() ? Violation::WrongSum : Violation::PeerLossUnnoticed,
          op.name() + ": no error " + std::to_string(seconds) + " s after rank " + std::to_string(who) + " died");
    rank.note("loss error", std::to_string(op.error()));
    if (op.failed()) {
      CollOp again(comm, {.count = 100, .verify = false}, 2);
      for (int i = 0; i < 100 && !again.failed(); ++i) again.step();
      if (!again.failed()) rank.report(Violation::ErrorNotSticky, "a new operation is accepted after an error");
    }
    op.abandon();
  };
}

Body fillsThePipeline(int atLeast) {
  return [=](Rank& rank) {
    CollComm comm(rank, {.channels = 16, .buffBytes = 64 << 10, .chunkBytes = 4 << 10});
    if (!comm.setUp()) return;
    for (std::uint64_t round = 0; round < 2; ++round) {
      CollOp op(comm, {.count = static_cast<std::size_t>(16 * 1024 * 10), .verify = false}, round);
      const std::size_t accepted = op.postOnly();
      if (accepted < static_cast<std::size_t>(atLeast))
        rank.report(Violation::TooFewRequests,
                    "only " + std::to_string(accepted) + " calls accepted before the first test");
      if (!drive({&op})) return;
      op.finish();
    }
    meet(rank);
  };
}

std::vector<Finding> reproduced(const Verdict& first, const Verdict& second) {
  std::vector<Finding> out;
  for (const auto& [key, byRank] : first.hashes) {
    const auto other = second.hashes.find(key);
    if (other == second.hashes.end() || other->second == byRank) continue;
    out.push_back({Violation::NotReproducible, -1, key + ": other bits in the second run"});
  }
  return out;
}

}  // namespace cgx::host
