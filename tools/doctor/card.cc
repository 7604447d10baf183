#include "doctor/card.h"

#include <nlohmann/json.hpp>

namespace cgx::tool::doctor {
namespace {

using nlohmann::json;

// NCCL's variables on which ranks should agree, or whose difference explains one.
constexpr const char* kVariables[] = {"NCCL_NET_PLUGIN",
                                      "NCCL_NET_PLUGIN_REF_COUNT",
                                      "NCCL_NET",
                                      "NCCL_COLLNET_ENABLE",
                                      "NCCL_COLLNET_NODE_THRESHOLD",
                                      "NCCL_TUNER_PLUGIN",
                                      "NCCL_ENV_PLUGIN",
                                      "NCCL_ALGO",
                                      "NCCL_PROTO",
                                      "NCCL_BUFFSIZE",
                                      "NCCL_MIN_NCHANNELS",
                                      "NCCL_MAX_NCHANNELS",
                                      "NCCL_MIN_CTAS",
                                      "NCCL_MAX_CTAS",
                                      "NCCL_SOCKET_FAMILY",
                                      "NCCL_SOCKET_IFNAME",
                                      "CUDA_DEVICE_MAX_CONNECTIONS"};

std::string hex(const transport::Handle& handle) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : handle) {
    const auto value = static_cast<unsigned>(byte);
    text += {kDigits[value >> 4], kDigits[value & 15]};
  }
  return text;
}

bool unhex(const std::string& text, transport::Handle* out) {
  const std::string digits = "0123456789abcdef";
  if (text.size() != 2 * out->size() || text.find_first_not_of(digits) != std::string::npos) return false;
  for (std::size_t i = 0; i < out->size(); ++i)
    (*out)[i] = static_cast<std::byte>(digits.find(text[2 * i]) * 16 + digits.find(text[2 * i + 1]));
  return true;
}

std::string dumped(const json& value) { return value.dump(-1, ' ', false, json::error_handler_t::replace); }

/// Runs `read` on the object in `text`; the library's exceptions end here.
template <class Read>
Status parsed(const std::string& text, Read&& read) {
  try {
    read(json::parse(text));
    return {};
  } catch (const json::exception&) {
    return Status::remote("sent what this version of cgx doctor (" CGX_VERSION ") does not understand");
  }
}

}  // namespace

Card cardOf(const Facts& facts, const Lookup& lookup) {
  Card card;
  card.version = CGX_VERSION;
  card.host = facts.host;
  card.identity = facts.hostIdentity;
  card.library = facts.opened;
  card.build = facts.build;
  if (!facts.nccl.empty()) card.nccl = facts.nccl.front().version.text();
  for (const SettingRow& row : describe(facts.settings, lookup)) card.settings[row.name] = row.value;
  for (const char* name : kVariables)
    if (const char* value = lookup(name); value != nullptr) card.variables[name] = value;
  card.staging = facts.settings.staging;
  card.blockElements = facts.settings.blockElements;
  card.maxRanks = facts.settings.maxRanks;
  card.worldRanks = facts.settings.worldRanks;
  card.devices = static_cast<int>(facts.devices.size());
  return card;
}

std::string encode(const Card& card) {
  json doors = json::array();
  for (const Door& door : card.doors) doors.push_back({{"device", door.device}, {"handle", hex(door.handle)}});
  return dumped({{"version", card.version},
                 {"host", card.host},
                 {"identity", card.identity},
                 {"library", card.library},
                 {"build", card.build},
                 {"nccl", card.nccl},
                 {"settings", card.settings},
                 {"variables", card.variables},
                 {"staging", card.staging},
                 {"blockElements", card.blockElements},
                 {"maxRanks", card.maxRanks},
                 {"worldRanks", card.worldRanks},
                 {"devices", card.devices},
                 {"doors", doors}});
}

Status decode(const std::string& text, Card* out) {
  Card card;
  bool whole = true;
  CGX_TRY(parsed(text, [&](const json& from) {
    from.at("version").get_to(card.version);
    from.at("host").get_to(card.host);
    from.at("identity").get_to(card.identity);
    from.at("library").get_to(card.library);
    from.at("build").get_to(card.build);
    from.at("nccl").get_to(card.nccl);
    from.at("settings").get_to(card.settings);
    from.at("variables").get_to(card.variables);
    from.at("staging").get_to(card.staging);
    from.at("blockElements").get_to(card.blockElements);
    from.at("maxRanks").get_to(card.maxRanks);
    from.at("worldRanks").get_to(card.worldRanks);
    from.at("devices").get_to(card.devices);
    for (const json& one : from.at("doors")) {
      Door door{one.at("device").get<std::string>(), {}};
      whole = whole && unhex(one.at("handle").get<std::string>(), &door.handle);
      card.doors.push_back(std::move(door));
    }
  }));
  if (!whole) return Status::remote("sent a handle that is none");
  *out = std::move(card);
  return {};
}

std::string encode(const Findings& findings) {
  json checks = json::array();
  for (const Check& check : findings.checks)
    checks.push_back({check.name, static_cast<int>(check.verdict), check.text, check.remedy});
  json unreached = json::array();
  for (const Unreached& one : findings.unreached) unreached.push_back({one.rank, one.device, one.why});
  return dumped({{"checks", checks}, {"unreached", unreached}});
}

Status decode(const std::string& text, Findings* out) {
  Findings findings;
  CGX_TRY(parsed(text, [&](const json& from) {
    for (const json& one : from.at("checks")) {
      const int verdict = one.at(1).get<int>();
      findings.checks.push_back({one.at(0).get<std::string>(),
                                 verdict == 0   ? Verdict::Ok
                                 : verdict == 1 ? Verdict::Note
                                                : Verdict::Problem,
                                 one.at(2).get<std::string>(), one.at(3).get<std::string>()});
    }
    for (const json& one : from.at("unreached"))
      findings.unreached.push_back({one.at(0).get<int>(), one.at(1).get<std::string>(), one.at(2).get<std::string>()});
  }));
  *out = std::move(findings);
  return {};
}

}  // namespace cgx::tool::doctor
