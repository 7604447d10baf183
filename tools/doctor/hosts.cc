#include "doctor/hosts.h"

#include <poll.h>

#include <algorithm>
#include <cctype>
#include <chrono>

#include "doctor/host_process.h"
#include "doctor/lines.h"
#include "text_files.h"

namespace cgx::tool::doctor {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kSlack = 30;  // seconds, for what a host does beside trying to reach others

bool replaceAll(std::string* text, const std::string& what, const std::string& with) {
  bool found = false;
  for (std::size_t at = text->find(what); at != std::string::npos; at = text->find(what, at + with.size())) {
    text->replace(at, what.size(), with);
    found = true;
  }
  return found;
}

/// A line from each, or the reason why there is none.
std::vector<std::string> collectLines(std::vector<HostProcess>* hosts, double seconds) {
  const auto deadline =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  std::vector<std::string> lines(hosts->size());
  for (;;) {
    std::vector<pollfd> polls;
    for (std::size_t i = 0; i < hosts->size(); ++i) {
      HostProcess& host = (*hosts)[i];
      if (!lines[i].empty() || !host.alive()) continue;
      host.pump();
      if (auto line = host.take()) {
        lines[i] = std::move(*line);
      } else if (host.alive()) {
        polls.push_back({host.linesFd(), POLLIN, 0});
        polls.push_back({host.errorsFd(), POLLIN, 0});
      }
    }
    if (polls.empty()) return lines;
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) break;
    (void)::poll(polls.data(), polls.size(), static_cast<int>(std::min<long long>(left, 200)));
  }
  for (std::size_t i = 0; i < hosts->size(); ++i)
    if (lines[i].empty())
      (*hosts)[i].giveUp("did not answer within " + std::to_string(static_cast<long>(seconds)) + " s");
  return lines;
}

/// One all-gather: what they say, in their types, and to each what all said.
template <class T>
std::vector<std::optional<T>> round(std::vector<HostProcess>* hosts, double seconds) {
  std::vector<std::string> lines = collectLines(hosts, seconds);
  std::vector<std::optional<T>> all(hosts->size());
  for (std::size_t i = 0; i < hosts->size(); ++i) {
    if (lines[i].empty()) continue;
    T one;
    if (const Status read = decode(lines[i], &one); read.ok()) {
      all[i] = std::move(one);
    } else {
      (*hosts)[i].giveUp(read.text());
      lines[i].clear();
    }
  }
  const std::string parts = packParts(lines);
  for (HostProcess& host : *hosts)
    if (host.alive()) host.send(parts);
  return all;
}

}  // namespace

Result<std::vector<std::string>> exported(const std::vector<std::string>& names, const Lookup& lookup) {
  std::vector<std::string> words;
  for (const std::string& one : names) {
    const std::string name = one.substr(0, one.find('='));
    const bool valid = !name.empty() && std::isdigit(static_cast<unsigned char>(name.front())) == 0 &&
                       std::all_of(name.begin(), name.end(),
                                   [](char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0; });
    if (!valid) return Status::invalid("-x " + one + ": \"" + name + "\" is no variable's name");
    const char* const value = lookup(name.c_str());
    if (name.size() < one.size())
      words.push_back(one);
    else if (value != nullptr)
      words.push_back(name + "=" + value);
    else
      return Status::invalid("-x " + name + " is not set here; -x " + name + "=value gives it one");
  }
  if (!words.empty()) words.insert(words.begin(), "env");
  return words;
}

Result<std::string> commandLine(const HostsPlan& plan, std::size_t index) {
  const std::string& host = plan.hosts[index];
  const bool plain = !host.empty() && host.front() != '-' && std::all_of(host.begin(), host.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 ||
           std::string_view("._-@:%[]").find(c) != std::string::npos;
  });
  if (!plain) return Status::invalid("--hosts: \"" + host + "\" is no host's name");
  std::string command;
  for (const std::string& word : plan.words) command += shellQuoted(word) + " ";
  command += "--member " + std::to_string(index);
  std::string line = plan.launcher;
  if (!replaceAll(&line, "{host}", shellQuoted(host)))
    return Status::invalid("--launcher \"" + plan.launcher + "\" does not say where {host} stands");
  if (!replaceAll(&line, "{command}", shellQuoted(command))) line += " " + command;
  return line;
}

HostsOutcome askHosts(const HostsPlan& plan, const std::vector<std::string>& lines) {
  std::vector<HostProcess> hosts;
  hosts.reserve(lines.size());
  for (const std::string& line : lines) hosts.emplace_back(line);
  HostsOutcome outcome;
  outcome.all.names = plan.hosts;
  outcome.all.cards = round<Card>(&hosts, plan.timeoutSeconds);
  outcome.all.findings = round<Findings>(&hosts, plan.reachSeconds + kSlack);
  for (const HostProcess& host : hosts) outcome.failed.push_back(host.whyNot());
  return outcome;
}

}  // namespace cgx::tool::doctor
