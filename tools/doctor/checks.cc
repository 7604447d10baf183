// The checks of `cgx doctor`.
#include "doctor/checks.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cgx/activation.h"

namespace cgx::tool::doctor {
namespace {

Check ok(std::string name, std::string text) { return {std::move(name), Verdict::Ok, std::move(text), {}}; }
Check note(std::string name, std::string text) { return {std::move(name), Verdict::Note, std::move(text), {}}; }
Check problem(std::string name, std::string text, std::string remedy) {
  return {std::move(name), Verdict::Problem, std::move(text), std::move(remedy)};
}
std::string from(const Variable& variable) { return variable.value + " (" + variable.origin + ")"; }

/// The first is what a program meets; unknown when there is none.
NcclVersion versionOf(const Facts& facts) { return facts.nccl.empty() ? NcclVersion{} : facts.nccl.front().version; }

Check checkNccl(const Facts& facts) {
  if (facts.nccl.empty())
    return note("NCCL", "none found; a program may bring its own, so what follows holds for every version");
  std::string text;
  for (const FoundNccl& found : facts.nccl)
    text += (text.empty() ? "" : "; ") + found.version.text() + " (" + found.origin + ")";
  return ok("NCCL", text);
}

Check checkNamed(const Facts& facts) {
  const std::string name = "named";
  if (!facts.plugin.set() || facts.plugin.value.empty())
    return problem(name, "NCCL_NET_PLUGIN is not set, so no job uses the plugin",
                   "export NCCL_NET_PLUGIN=/usr/local/lib/libnccl-net-cgx.so (on every node)");
  const NcclVersion version = versionOf(facts);
  if (version.known() && version < NcclVersion{2, 21, 0} && facts.plugin.value != "cgx")
    return problem(name, "NCCL " + version.text() + " does not understand NCCL_NET_PLUGIN=" + from(facts.plugin),
                   "set NCCL_NET_PLUGIN=cgx, with the library's folder on the loader's path");
  return ok(name, "NCCL_NET_PLUGIN=" + from(facts.plugin));
}

Check checkLibrary(const Facts& facts) {
  const std::string name = "library";
  if (!facts.plugin.set() || facts.plugin.value.empty()) return note(name, "not looked for, as none is named");
  if (facts.opened.empty())
    return problem(name, facts.openError,
                   "NCCL goes on silently without it: check the path, LD_LIBRARY_PATH and ldconfig; NCCL_NET=CGX makes "
                   "this an error in the job");
  if (!facts.ours)
    return problem(name, facts.opened + " is another plugin", "name libnccl-net-cgx.so in NCCL_NET_PLUGIN");
  return ok(name, facts.opened);
}

Check checkInterfaces(const Facts& facts) {
  const std::string name = "interfaces";
  if (!facts.ours) return note(name, "not looked at, as the plugin was not opened");
  if (!facts.initError.empty() || facts.devices.empty())
    return problem(name, facts.initError.empty() ? "none that can be used" : facts.initError,
                   "bring one up that reaches the other hosts, or name it in NCCL_SOCKET_IFNAME (lo and docker* count "
                   "only when named)");
  std::string text;
  for (const std::string& device : facts.devices) text += (text.empty() ? "" : "; ") + device;
  return ok(name, text);
}

Check checkCollnet(const Facts& facts) {
  const std::string name = "CollNet";
  const NcclVersion version = versionOf(facts);
  const std::string remedy = activation::remedy(version, facts.opened);
  if (facts.collnet.set()) {
    if (activation::collnetOn(facts.collnet.value, version))
      return ok(name, "NCCL_COLLNET_ENABLE=" + from(facts.collnet));
    return problem(name, "NCCL_COLLNET_ENABLE=" + from(facts.collnet) + " leaves it off", remedy);
  }
  if (activation::wayOf(version) == activation::Way::FromInit)
    return ok(name, "the plugin's init switches it on in time for NCCL " + version.text());
  if (activation::wayOf(version) == activation::Way::EnvPlugin && facts.envPlugin)
    return ok(name, "the env plugin switches it on for NCCL " + version.text());
  return problem(name, "off, as NCCL_COLLNET_ENABLE is not set: nothing is compressed", remedy);
}

Check checkReload(const Facts& facts) {
  const std::string name = "reload";
  const NcclVersion version = versionOf(facts);
  const bool forgets = version.known() && activation::forgetsThePlugin(version);
  const bool told =
      !facts.refCount.set() && facts.envPlugin && activation::wayOf(version) == activation::Way::EnvPlugin;
  if (!forgets || told || facts.refCount.value == "1") return ok(name, "the plugin stays known between communicators");
  return note(name, "NCCL " + version.text() +
                        " forgets the plugin with the last communicator: jobs that make another then need "
                        "NCCL_NET_PLUGIN_REF_COUNT=1");
}

Check checkSettings(const Facts& facts) {
  const std::string name = "settings";
  if (!facts.badSettings.empty())
    return problem(name, facts.badSettings, "until then nothing is compressed; `cgx info` lists what is accepted");
  if (!facts.unknownSettings.empty()) {
    std::string text;
    for (const std::string& line : facts.unknownSettings) text += (text.empty() ? "" : "; ") + line;
    return problem(name, text, "correct the name or unset it; it has no effect");
  }
  if (!facts.compressing) return note(name, "CGX_BITS or CGX_MODE switch compression off");
  return ok(name, "all are understood; they should be the same on every rank");
}

Check checkAlgorithm(const Facts& facts) {
  const std::string name = "algorithm";
  if (facts.algorithm.set())
    return note(name, "NCCL_ALGO=" + from(facts.algorithm) + " is obeyed, so the tuner has no choice");
  return ok(name, "left to the tuner");
}

Check checkOthers(const Facts& facts) {
  const std::string name = "others";
  if (facts.foreignDefault)
    return note(name, "another plugin is installed as libnccl-net.so; jobs that do not name ours use that one");
  return ok(name, "no other plugin of the default name");
}

Check checkFiles(const Facts& facts) {
  // Two ends of two streams for each of 64 ranks, net connections of some channels, and what the program has open.
  constexpr unsigned long kEnough = 1024;
  if (facts.openFiles < kEnough)
    return problem("open files", "at most " + std::to_string(facts.openFiles) + " a process",
                   "raise it: ulimit -n 65536 (in containers: --ulimit nofile=65536)");
  return ok("open files", "at most " + std::to_string(facts.openFiles) + " a process");
}

Check checkQueues(const Facts& facts) {
  if (facts.cudaQueues.value == "1")
    return note("CUDA queues", "CUDA_DEVICE_MAX_CONNECTIONS=1: harmless, the plugin takes host memory only");
  return ok("CUDA queues", "nothing unusual");
}

const char* word(Verdict verdict) {
  return verdict == Verdict::Ok ? "ok" : verdict == Verdict::Note ? "note" : "problem";
}

}  // namespace

std::vector<Check> diagnose(const Facts& facts) {
  std::vector<Check> checks;
  for (const auto check : {checkNccl, checkNamed, checkLibrary, checkInterfaces, checkCollnet, checkReload,
                           checkSettings, checkAlgorithm, checkOthers, checkFiles, checkQueues})
    checks.push_back(check(facts));
  return checks;
}

std::string text(const std::vector<Check>& checks) {
  std::string out;
  for (const Check& check : checks) {
    std::string head = word(check.verdict);
    head.resize(9, ' ');
    std::string name = check.name;
    name.resize(std::max<std::size_t>(name.size(), 12), ' ');
    out += head + name + " " + check.text + "\n";
    if (!check.remedy.empty()) out += std::string(9, ' ') + "-> " + check.remedy + "\n";
  }
  const auto problems =
      std::count_if(checks.begin(), checks.end(), [](const Check& check) { return check.verdict == Verdict::Problem; });
  return out + (problems == 0 ? "no problem found on this host\n" : std::to_string(problems) + " problem(s)\n");
}

std::string json(const std::vector<Check>& checks) {
  nlohmann::json all = nlohmann::json::array();
  for (const Check& check : checks)
    all.push_back(
        {{"check", check.name}, {"verdict", word(check.verdict)}, {"text", check.text}, {"remedy", check.remedy}});
  return all.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace cgx::tool::doctor
