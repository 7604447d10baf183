// The checks of `cgx doctor`.
#include "doctor/checks.h"

#include <strings.h>

#include "cgx/activation.h"

namespace cgx::tool::doctor {

Check ok(std::string name, std::string text) { return {std::move(name), Verdict::Ok, std::move(text), {}}; }
Check note(std::string name, std::string text) { return {std::move(name), Verdict::Note, std::move(text), {}}; }
Check problem(std::string name, std::string text, std::string remedy) {
  return {std::move(name), Verdict::Problem, std::move(text), std::move(remedy)};
}

namespace {

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
    return problem(
        name, "NCCL_NET_PLUGIN is not set, so no job uses the plugin",
        "start the program with `cgx run --` in front, or export NCCL_NET_PLUGIN=cgx, with the library's folder on the "
        "loader's path, on every node");
  const NcclVersion version = versionOf(facts);
  const char* const value = facts.plugin.value.c_str();
  if (activation::namesUs(value, facts.opened) && !activation::understood(value, facts.opened, version))
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
  if (activation::wayOf(version) == activation::Way::EnvPlugin && facts.env.ours)
    return ok(name, "the env plugin switches it on for NCCL " + version.text());
  return problem(name, "off, as NCCL_COLLNET_ENABLE is not set: nothing is compressed", remedy);
}

Check checkReload(const Facts& facts) {
  const std::string name = "reload";
  const NcclVersion version = versionOf(facts);
  const bool forgets = version.known() && activation::forgetsThePlugin(version);
  const bool told = !facts.refCount.set() && facts.env.ours && activation::wayOf(version) == activation::Way::EnvPlugin;
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
  if (facts.settings.bits > 8 || facts.settings.mode == Mode::Off)
    return note(name, "CGX_BITS or CGX_MODE switch compression off");
  return ok(name, "all are understood");
}

Check checkAlgorithm(const Facts& facts) {
  const std::string name = "algorithm";
  if (facts.algorithm.set())
    return note(name, "NCCL_ALGO=" + from(facts.algorithm) + " is obeyed, so the tuner has no choice");
  return ok(name, "left to the tuner");
}

std::string described(const OtherPlugin& plugin) {
  return plugin.opened + (plugin.calls.empty() ? "" : " (calls itself " + plugin.calls + ")");
}

Check checkNet(const Facts& facts) {
  const std::string name = "net";
  if (!facts.net.set() || facts.net.value.empty())
    return ok(name, "NCCL_NET is not set, so the plugin's net is taken if it starts");
  if (::strcasecmp(facts.net.value.c_str(), "CGX") == 0)
    return ok(name, "NCCL_NET=" + from(facts.net) + ": the job ends with an error where the plugin is not usable");
  return problem(name, "NCCL_NET=" + from(facts.net) + " names another network, so NCCL drops the plugin",
                 "unset it, or NCCL_NET=CGX");
}

Check checkEnv(const Facts& facts) {
  const std::string name = "env plugin";
  const OtherPlugin& env = facts.env;
  if (env.opened.empty())
    return ok(name, env.named.set() && env.named.value != "none"
                        ? "NCCL_ENV_PLUGIN=" + from(env.named) + " is not found, so there is none"
                        : "none; it is only a convenience from NCCL 2.28.7 on");
  if (env.ours) return ok(name, described(env));
  return note(name, described(env) + " is another plugin: what NCCL needs must be set by hand");
}

Check checkTuner(const Facts& facts) {
  const std::string name = "tuner";
  const OtherPlugin& tuner = facts.tuner;
  const std::string effect = ": the plugin's own tuner is not asked, so CGX_MODE and CGX_COMMS do not choose";
  if (tuner.named.value == "none") return note(name, "NCCL_TUNER_PLUGIN=" + from(tuner.named) + effect);
  if (tuner.ours) return ok(name, described(tuner));
  if (!tuner.opened.empty() && tuner.named.set())
    return note(name, "NCCL_TUNER_PLUGIN=" + from(tuner.named) + " is " + described(tuner) + effect);
  if (!tuner.opened.empty())
    return problem(name, "NCCL takes " + described(tuner) + " as it lies on the loader's path" + effect,
                   "export NCCL_TUNER_PLUGIN=" + (facts.opened.empty() ? "libnccl-net-cgx.so" : facts.opened));
  return ok(name, "the plugin's own, as there is no libnccl-tuner.so");
}

Check checkOthers(const Facts& facts) {
  const std::string name = "others";
  if (facts.defaultNet.opened.empty()) return ok(name, "no other plugin of the default name");
  if (facts.defaultNet.ours) return ok(name, facts.defaultNet.opened + " is this plugin, too");
  return note(name, described(facts.defaultNet) +
                        " is another plugin of the default name; jobs that do not name ours use that one");
}

}  // namespace

std::vector<Check> diagnose(const Facts& facts) {
  std::vector<Check> checks;
  for (const auto check : {checkNccl, checkNamed, checkLibrary, checkNet, checkInterfaces, checkCollnet, checkEnv,
                           checkReload, checkTuner, checkSettings, checkAlgorithm, checkOthers, checkStaging,
                           checkSharedMemory, checkLockedMemory, checkFiles, checkGpus, checkQueues})
    checks.push_back(check(facts));
  return checks;
}

}  // namespace cgx::tool::doctor
