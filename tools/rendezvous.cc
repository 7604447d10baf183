#include "rendezvous.h"

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "meet.h"
#include "rendezvous_link.h"

namespace cgx::tool {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kLastWords =
    std::chrono::milliseconds(1500);  // how long rank 0 listens for others' errors when it gives up
constexpr auto kTakeNote = std::chrono::milliseconds(3000);  // how long others wait for rank 0 to take note

std::string rankText(int rank) { return "rank " + std::to_string(rank); }

void waitFor(const std::vector<Link*>& links, int timeoutMs) {
  std::vector<pollfd> polls;
  for (const Link* link : links)
    if (!link->ended()) polls.push_back({link->fd(), POLLIN, 0});
  (void)::poll(polls.data(), polls.size(), timeoutMs);
}

int millisecondsUntil(Clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 1000));
}

void appendPart(std::string* all, std::string_view part) {
  const auto length = static_cast<std::uint32_t>(part.size());
  all->append(reinterpret_cast<const char*>(&length), sizeof length);
  all->append(part);
}

Result<std::vector<std::string>> splitParts(std::string_view all, std::size_t count) {
  std::vector<std::string> parts;
  while (all.size() >= 4) {
    std::uint32_t length = 0;
    std::memcpy(&length, all.data(), 4);
    if (length > all.size() - 4) break;
    parts.emplace_back(all.substr(4, length));
    all.remove_prefix(4 + length);
  }
  if (parts.size() != count || !all.empty()) return Status::remote("rank 0 sent an answer that makes no sense");
  return parts;
}

/// Rank 0: links_[r - 1] leads to rank r.
class Root final : public Rendezvous {
 public:
  explicit Root(std::vector<Link> links) : links_(std::move(links)), waiting_(links_.size()), spoke_(links_.size()) {}

  Result<std::vector<std::string>> allGather(std::string_view mine) override {
    std::string all;
    for (;;) {
      CGX_TRY(check());
      if (std::none_of(waiting_.begin(), waiting_.end(), [](const auto& queue) { return queue.empty(); })) break;
      waitFor(pointers(), 1000);
    }
    appendPart(&all, mine);
    for (auto& queue : waiting_) {
      appendPart(&all, queue.front());
      queue.erase(queue.begin());
    }
    for (std::size_t i = 0; i < links_.size(); ++i)
      if (Status sent = links_[i].send(FrameKind::Data, all); !sent.ok()) return gone(i);
    return splitParts(all, links_.size() + 1);
  }

  Status check() override {
    for (std::size_t i = 0; i < links_.size(); ++i) {
      const bool alive = links_[i].pump();
      while (auto frame = links_[i].next()) {
        if (frame->kind == FrameKind::Failed) {
          spoke_[i] = true;
          return Status::remote(rankText(rankAt(i)) + ": " + frame->text);
        }
        waiting_[i].push_back(std::move(frame->text));
      }
      // A rank that has sent its part of the last all-gather may end before rank 0 has looked.
      if (!alive && waiting_[i].empty()) return gone(i);
    }
    return {};
  }

  std::optional<Status> giveUp(const Status& why) override {
    std::optional<Status> vanished;
    const auto deadline = Clock::now() + kLastWords;
    for (;;) {
      bool all = true;
      for (std::size_t i = 0; i < links_.size(); ++i) {
        links_[i].pump();
        while (auto frame = links_[i].next()) spoke_[i] = spoke_[i] || frame->kind == FrameKind::Failed;
        if (links_[i].ended() && !spoke_[i] && !vanished) vanished = gone(i);
        all = all && (spoke_[i] || links_[i].ended());
      }
      if (all || vanished || Clock::now() >= deadline) break;
      waitFor(pointers(), millisecondsUntil(deadline));
    }
    const Status& worst = vanished ? *vanished : why;
    for (Link& link : links_)
      if (!link.ended()) (void)link.send(FrameKind::Failed, worst.text());
    if (!vanished || why.text() == vanished->text()) return why;
    return Status::remote(vanished->text() + "; rank 0: " + why.text());
  }

 private:
  static int rankAt(std::size_t i) { return static_cast<int>(i) + 1; }
  static Status gone(std::size_t i) {
    return Status::remote(rankText(rankAt(i)) + " has gone (its connection closed)");
  }
  std::vector<Link*> pointers() {
    std::vector<Link*> all;
    for (Link& link : links_) all.push_back(&link);
    return all;
  }

  std::vector<Link> links_;
  std::vector<std::vector<std::string>> waiting_;  // parts that came ahead, by link
  std::vector<bool> spoke_;                        // has said why it gives up
};

class Leaf final : public Rendezvous {
 public:
  Leaf(Link link, int ranks) : link_(std::move(link)), ranks_(ranks) {}

  Result<std::vector<std::string>> allGather(std::string_view mine) override {
    if (Status sent = link_.send(FrameKind::Data, mine); !sent.ok()) return Status::remote("rank 0 has gone");
    for (;;) {
      CGX_TRY(check());
      if (!answers_.empty()) break;
      waitFor({&link_}, 1000);
    }
    const std::string all = std::move(answers_.front());
    answers_.erase(answers_.begin());
    return splitParts(all, static_cast<std::size_t>(ranks_));
  }

  Status check() override {
    const bool alive = link_.pump();
    while (auto frame = link_.next()) {
      if (frame->kind == FrameKind::Failed) {
        noted_ = true;
        return Status::remote(frame->text);
      }
      answers_.push_back(std::move(frame->text));
    }
    if (!alive && answers_.empty()) return Status::remote("rank 0 has gone (its connection closed)");
    return {};
  }

  std::optional<Status> giveUp(const Status& why) override {
    if (noted_) return std::nullopt;
    if (!link_.send(FrameKind::Failed, why.text()).ok()) return why;
    const auto deadline = Clock::now() + kTakeNote;
    while (Clock::now() < deadline) {
      if (const Status status = check(); !status.ok()) break;
      waitFor({&link_}, millisecondsUntil(deadline));
    }
    return noted_ ? std::nullopt : std::optional<Status>(why);
  }

 private:
  Link link_;
  int ranks_;
  bool noted_ = false;  // rank 0 has said why all is over, so it has printed it
  std::vector<std::string> answers_;
};

}  // namespace

Result<std::unique_ptr<Rendezvous>> meet(const Meeting& meeting) {
  if (meeting.rank == 0) {
    Result<std::vector<Link>> links = gatherRanks(meeting);
    if (!links.ok()) return links.status();
    return std::unique_ptr<Rendezvous>(std::make_unique<Root>(std::move(links).value()));
  }
  Result<Link> link = joinRoot(meeting);
  if (!link.ok()) return link.status();
  return std::unique_ptr<Rendezvous>(std::make_unique<Leaf>(std::move(link).value(), meeting.ranks));
}

}  // namespace cgx::tool
