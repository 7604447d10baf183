// N engines joined by memory links, each with its own settings, driven from one seed: posts, tests, deliveries and jobs
// in any order.
#pragma once

#include <gtest/gtest.h>

#include "collective/engine.h"
#include "support/memory_world.h"

namespace cgx::test {

/// One call that every rank makes; buffers by rank.
struct Call {
  collective::Shape shape;
  std::vector<std::vector<std::byte>> send;
  std::vector<std::vector<std::byte>> recv;
  bool inPlace = false;  // recv holds the input
  bool clearSend = false;
  std::vector<std::size_t> reported;
};

class EngineRanks {
 public:
  EngineRanks(std::uint64_t seed, const std::vector<Settings>& settings, std::size_t blockElements = 4096,
              bool hostileFloats = false)
      : world_(seed), executor_(world_, hostileFloats) {
    const int ranks = static_cast<int>(settings.size());
    std::vector<std::vector<std::unique_ptr<transport::Connection>>> links(settings.size());
    for (auto& row : links) row.resize(settings.size());
    for (int a = 0; a < ranks; ++a) {
      for (int b = a + 1; b < ranks; ++b) {
        auto [first, second] = MemoryConnection::pair(world_, a, b);
        links[static_cast<std::size_t>(a)][static_cast<std::size_t>(b)] = std::move(first);
        links[static_cast<std::size_t>(b)][static_cast<std::size_t>(a)] = std::move(second);
      }
    }
    for (int r = 0; r < ranks; ++r) {
      const Settings& own = settings[static_cast<std::size_t>(r)];
      collective::EngineOptions options;
      options.rank = r;
      options.limits = {ranks, blockElements, own.onePhaseBytes};
      options.settings = own;
      options.kernels = codec::select(own.simd).value();
      options.executor = &executor_;
      engines_.push_back(
          std::make_unique<collective::Engine>(std::move(options), std::move(links[static_cast<std::size_t>(r)])));
      EXPECT_TRUE(engines_.back()->start().ok());
    }
  }
  ~EngineRanks() {
    for (auto& engine : engines_) {
      engine->fail(Status::remote("test ends"));  // so that close() finds its jobs gone after run()
    }
    world_.run();
  }

  MemoryWorld& world() { return world_; }
  collective::Engine& engine(std::size_t rank) { return *engines_[rank]; }
  std::size_t size() const { return engines_.size(); }

  /// Makes every rank run `calls` in order; `lateRank` starts only when nothing else can happen. Returns what went
  /// wrong.
  std::string run(std::vector<Call>& calls, int lateRank = -1) {
    struct Progress {
      std::size_t posted = 0;
      std::size_t done = 0;
      std::vector<collective::Request*> requests;
    };
    std::vector<Progress> progress(engines_.size());
    for (Call& call : calls) call.reported.resize(engines_.size());
    bool released = lateRank < 0;
    std::size_t idle = 0;
    for (;;) {
      bool moved = world_.step();
      bool finished = true;
      for (std::size_t r = 0; r < engines_.size(); ++r) {
        Progress& p = progress[r];
        finished &= p.done == calls.size();
        if (static_cast<int>(r) == lateRank && !released) continue;
        if (moved && world_.random()() % 4 != 0) continue;  // sometimes the caller is slow
        if (p.posted < calls.size()) {
          collective::Request* request = nullptr;
          if (Status s = post(calls[p.posted], r, &request); !s.ok()) return s.text();
          if (request != nullptr) {
            p.requests.push_back(request);
            ++p.posted;
            moved = true;
          }
        }
        if (p.done < p.posted) {
          std::size_t bytes = 0;
          const Status s = engines_[r]->test(p.requests[p.done], &bytes);
          if (s.failed()) return s.text();
          if (s.ok()) {
            calls[p.done].reported[r] = bytes;
            ++p.done;
            moved = true;
          }
        }
      }
      if (finished) return "";
      idle = moved ? 0 : idle + 1;
      if (idle > 2 && !released) {
        released = true;
        idle = 0;
      }
      if (idle > 2) return "stuck";
    }
  }

  Status post(Call& call, std::size_t rank, collective::Request** request) {
    const collective::Shape& shape = call.shape;
    const void* send = call.inPlace ? call.recv[rank].data() : call.send[rank].data();
    return engines_[rank]->post(shape, send, call.recv[rank].data(), call.clearSend && !call.inPlace,
                                shape.count * shape.elementBytes(), request);
  }

 private:
  MemoryWorld world_;
  MemoryExecutor executor_;
  std::vector<std::unique_ptr<collective::Engine>> engines_;
};

}  // namespace cgx::test
