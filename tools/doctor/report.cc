#include "doctor/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace cgx::tool::doctor {
namespace {

const char* word(Verdict verdict) {
  return verdict == Verdict::Ok ? "ok" : verdict == Verdict::Note ? "note" : "problem";
}

std::string line(const Check& check, const std::string& who) {
  std::string out = word(check.verdict);
  out.resize(9, ' ');
  std::string name = check.name;
  name.resize(std::max<std::size_t>(name.size(), 12), ' ');
  out += name + " " + check.text + (who.empty() ? "" : " [" + who + "]") + "\n";
  if (!check.remedy.empty()) out += std::string(9, ' ') + "-> " + check.remedy + "\n";
  return out;
}

/// Those who say the same of one thing.
struct Voice {
  const Check* check;
  std::vector<std::string> names;
};

std::string joined(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 8;
  std::string out;
  for (std::size_t i = 0; i < std::min(names.size(), kMost); ++i) out += (i == 0 ? "" : ", ") + names[i];
  return names.size() > kMost ? out + " and " + std::to_string(names.size() - kMost) + " more" : out;
}

std::vector<Voice> voices(const Report& report, const std::string& name) {
  std::vector<Voice> all;
  for (const Witness& witness : report.witnesses)
    for (const Check& check : witness.checks) {
      if (check.name != name) continue;
      const auto same = std::find_if(all.begin(), all.end(), [&](const Voice& voice) { return *voice.check == check; });
      if (same != all.end())
        same->names.push_back(witness.name);
      else
        all.push_back({&check, {witness.name}});
    }
  return all;
}

std::vector<std::string> checkNames(const Report& report) {
  std::vector<std::string> names;
  for (const Witness& witness : report.witnesses)
    for (const Check& check : witness.checks)
      if (std::find(names.begin(), names.end(), check.name) == names.end()) names.push_back(check.name);
  return names;
}

nlohmann::json json(const std::vector<Check>& checks) {
  nlohmann::json all = nlohmann::json::array();
  for (const Check& check : checks)
    all.push_back(
        {{"check", check.name}, {"verdict", word(check.verdict)}, {"text", check.text}, {"remedy", check.remedy}});
  return all;
}

std::size_t problemsIn(const std::vector<Check>& checks) {
  return static_cast<std::size_t>(
      std::count_if(checks.begin(), checks.end(), [](const Check& c) { return c.verdict == Verdict::Problem; }));
}

}  // namespace

std::size_t problems(const Report& report) {
  std::size_t count = problemsIn(report.together);
  for (const Witness& witness : report.witnesses) count += problemsIn(witness.checks);
  return count;
}

std::string text(const Report& report) {
  std::string out;
  for (const std::string& name : checkNames(report))
    for (const Voice& voice : voices(report, name))
      out += line(*voice.check, voice.names.size() == report.witnesses.size() ? "" : joined(voice.names));
  for (const Check& check : report.together) out += line(check, "");
  const std::size_t count = problems(report);
  if (count > 0) return out + std::to_string(count) + " problem(s)\n";
  return out + "no problem found" + (report.witnesses.size() == 1 ? " on this host\n" : "\n");
}

std::string json(const Report& report) {
  nlohmann::json witnesses = nlohmann::json::array();
  for (const Witness& witness : report.witnesses)
    witnesses.push_back({{"name", witness.name}, {"checks", json(witness.checks)}});
  const nlohmann::json whole{
      {"problems", problems(report)}, {"together", json(report.together)}, {"witnesses", witnesses}};
  return whole.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace cgx::tool::doctor
