#include "run_report/chart.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace cgx::tool::chart {
namespace {

constexpr double kWidth = 380;
constexpr double kHeight = 190;
constexpr double kLeft = 54;
constexpr double kRight = 370;
constexpr double kTop = 10;
constexpr double kBottom = 164;

std::string number(double value) {
  char text[64];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

struct Scale {
  const Axis& axis;
  double first;
  double last;

  double of(double value) const {
    const auto on = [this](double v) { return axis.decades ? std::log10(v) : v; };
    const double span = on(axis.to) - on(axis.from);
    const double share = span > 0 ? (on(value) - on(axis.from)) / span : 0.5;
    return first + std::clamp(share, 0.0, 1.0) * (last - first);
  }
};

std::string begin(const std::string& title, double height) {
  return "<svg viewBox=\"0 0 " + number(kWidth) + " " + number(height) + "\" role=\"img\" aria-label=\"" +
         escaped(title) + "\">\n";
}

std::string label(double x, double y, const char* anchor, const std::string& text) {
  return "<text x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" + anchor + "\">" + escaped(text) +
         "</text>\n";
}

std::string rule(const char* style, double x1, double y1, double x2, double y2) {
  return std::string("<path class=\"") + style + "\" d=\"M" + number(x1) + " " + number(y1) + "L" + number(x2) + " " +
         number(y2) + "\"/>\n";
}

std::string hint(const std::string& text) { return "<title>" + escaped(text) + "</title>"; }

/// Both axes with their rules and names; what is drawn comes on top.
std::string frame(const Scale& x, const Scale& y) {
  std::string out;
  for (const auto& [value, name] : y.axis.ticks) {
    out += rule("grid", kLeft, y.of(value), kRight, y.of(value));
    out += label(kLeft - 6, y.of(value) + 4, "end", name);
  }
  for (const auto& [value, name] : x.axis.ticks) {
    const double at = x.of(value);
    const double half = 3.2 * static_cast<double>(name.size());
    out += label(std::min(at, kWidth - 2 - half), kBottom + 17, "middle", name);
  }
  return out + rule("axis", kLeft, kBottom, kRight, kBottom);
}

/// A path through the points; a NaN lifts the pen. A point that stands alone is a line of no length: a dot.
std::string path(const Plot& plot, const std::vector<double>& values, const Scale& x, const Scale& y) {
  std::string out;
  bool down = false;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) {
      down = false;
      continue;
    }
    out += (down ? "L" : "M") + number(x.of(plot.at[i])) + " " + number(y.of(values[i]));
    if (!down) out += "h0";
    down = true;
  }
  return out;
}

/// Closed shapes between low and high, one for each stretch without a gap.
std::string band(const Plot& plot, const Scale& x, const Scale& y) {
  std::string out;
  for (std::size_t i = 0; i < plot.low.size();) {
    std::size_t end = i;
    while (end < plot.low.size() && !std::isnan(plot.low[end])) ++end;
    for (std::size_t k = i; k < end; ++k)
      out += (k == i ? "M" : "L") + number(x.of(plot.at[k])) + " " + number(y.of(plot.high[k]));
    for (std::size_t k = end; k > i; --k)
      out += "L" + number(x.of(plot.at[k - 1])) + " " + number(y.of(plot.low[k - 1]));
    if (end > i) out += "Z";
    i = end + 1;
  }
  return out.empty() ? "" : "<path class=\"band\" d=\"" + out + "\"/>\n";
}

/// 1, 2 or 5 times a power of ten, so that about `most` of them make `span`.
double roundStep(double span, double most) {
  const double rough = span / most;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  for (const double times : {1.0, 2.0, 5.0})
    if (times * power >= rough * 0.999) return times * power;
  return 10 * power;
}

std::string unit(double value, const char* name) { return plainText(value) + " " + name; }

}  // namespace

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c >= ' ' && c <= '~' ? c : '?';
    }
  }
  return out;
}

std::string plainText(double value) {
  char text[64];
  if (value != 0 && (std::fabs(value) < 0.001 || std::fabs(value) >= 1e6)) {
    std::snprintf(text, sizeof text, "%.3g", value);
    return text;
  }
  const double size = std::fabs(value);
  std::snprintf(text, sizeof text, "%.*f", size >= 100 ? 0 : size >= 10 ? 1 : size >= 1 ? 2 : 3, value);
  std::string out = text;
  while (out.find('.') != std::string::npos && (out.back() == '0' || out.back() == '.')) {
    const bool point = out.back() == '.';
    out.pop_back();
    if (point) break;
  }
  return out;
}

std::string secondsText(double seconds) {
  if (seconds == 0) return "0 s";
  if (seconds < 1e-6) return unit(seconds * 1e9, "ns");
  if (seconds < 1e-3) return unit(seconds * 1e6, "us");
  if (seconds < 1) return unit(seconds * 1e3, "ms");
  if (seconds < 300) return unit(seconds, "s");
  if (seconds < 3 * 3600) return unit(seconds / 60, "min");
  return unit(seconds / 3600, "h");
}

std::string bytesText(double bytes) {
  const char* const names[] = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  std::size_t k = 0;
  while (k + 1 < std::size(names) && bytes >= 999.5) {
    bytes /= 1000;
    ++k;
  }
  return unit(bytes, names[k]);
}

Axis axisTo(double highest, Format format) {
  if (!(highest > 0) || !std::isfinite(highest)) highest = 1;
  const double step = roundStep(highest, 4);
  Axis axis;
  axis.to = std::ceil(highest / step * 0.999) * step;
  for (int k = 0; k * step <= axis.to * 1.001; ++k) axis.ticks.emplace_back(k * step, format(k * step));
  return axis;
}

Axis clockAxis(double seconds) {
  const double unitSeconds = seconds < 300 ? 1 : seconds < 3 * 3600 ? 60 : 3600;
  const char* const name = unitSeconds == 1 ? "s" : unitSeconds == 60 ? "min" : "h";
  const double step = roundStep(seconds / unitSeconds, 5);
  Axis axis;
  axis.to = seconds;
  for (int k = 0; k * step * unitSeconds <= seconds * 1.001; ++k)
    axis.ticks.emplace_back(k * step * unitSeconds, unit(k * step, name));
  return axis;
}

Axis decadesOf(double lowest, double highest, Format format) {
  if (!(lowest > 0) || !(highest >= lowest) || !std::isfinite(highest)) lowest = highest = 1;
  const double first = std::floor(std::log10(lowest) + 1e-9);
  const double last = std::max(first + 1, std::ceil(std::log10(highest) - 1e-9));
  Axis axis;
  axis.from = std::pow(10, first);
  axis.to = std::pow(10, last);
  axis.decades = true;
  const double step = std::ceil((last - first) / 5);
  for (double k = first; k <= last; k += step) axis.ticks.emplace_back(std::pow(10, k), format(std::pow(10, k)));
  return axis;
}

Axis namesAxis(const std::vector<std::string>& names) {
  Axis axis;
  axis.from = -0.5;
  axis.to = static_cast<double>(names.size()) - 0.5;
  constexpr std::size_t kRoom = 7;
  const std::size_t step = std::max<std::size_t>(1, (names.size() + kRoom - 1) / kRoom);
  for (std::size_t k = 0; k < names.size(); k += step) axis.ticks.emplace_back(static_cast<double>(k), names[k]);
  return axis;
}

std::string lines(const Plot& plot) {
  const Scale x{plot.x, kLeft, kRight};
  const Scale y{plot.y, kBottom, kTop};
  std::string out = begin(plot.title, kHeight) + frame(x, y) + band(plot, x, y);
  for (const Curve& curve : plot.curves)
    out += "<path class=\"line " + curve.style + "\" d=\"" + path(plot, curve.values, x, y) + "\"/>\n";
  constexpr std::size_t kDots = 32;  // more of them would hide the line
  for (const Curve& curve : plot.curves) {
    for (std::size_t i = 0; plot.at.size() <= kDots && i < curve.values.size(); ++i) {
      if (std::isnan(curve.values[i])) continue;
      out += "<circle class=\"" + curve.style + "\" cx=\"" + number(x.of(plot.at[i])) + "\" cy=\"" +
             number(y.of(curve.values[i])) + "\" r=\"3\">" + hint(curve.name + ": " + plot.format(curve.values[i])) +
             "</circle>\n";
    }
  }
  return out + "</svg>\n";
}

std::string columns(const Plot& plot) {
  const Scale x{plot.x, kLeft, kRight};
  const Scale y{plot.y, kBottom, kTop};
  std::string out = begin(plot.title, kHeight) + frame(x, y);
  const Curve& curve = plot.curves.front();
  const double room = (kRight - kLeft) / std::max(1.0, static_cast<double>(curve.values.size()));
  const double width = std::min(28.0, room * 0.7);
  for (std::size_t i = 0; i < curve.values.size(); ++i) {
    if (std::isnan(curve.values[i])) continue;
    const double top = y.of(curve.values[i]);
    out += "<rect class=\"" + curve.style + "\" x=\"" + number(x.of(plot.at[i]) - width / 2) + "\" y=\"" + number(top) +
           "\" width=\"" + number(width) + "\" height=\"" + number(kBottom - top) + "\">" +
           hint(curve.name + ": " + plot.format(curve.values[i])) + "</rect>\n";
  }
  return out + "</svg>\n";
}

std::string bars(const std::string& title, const std::vector<Bar>& bars, const std::vector<Curve>& parts,
                 Format format) {
  constexpr double kRow = 22;
  constexpr double kThick = 14;
  double longest = 0;
  for (const Bar& bar : bars) {
    double sum = 0;
    for (const double part : bar.parts) sum += part;
    longest = std::max(longest, sum);
  }
  const Axis axis = axisTo(longest, format);
  const Scale x{axis, kLeft + 8, kRight};
  const double bottom = kTop + kRow * static_cast<double>(bars.size());
  std::string out = begin(title, bottom + 26);
  for (const auto& [value, name] : axis.ticks) {
    out += rule("grid", x.of(value), kTop, x.of(value), bottom);
    out +=
        label(std::min(x.of(value), kWidth - 2 - 3.2 * static_cast<double>(name.size())), bottom + 17, "middle", name);
  }
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const double top = kTop + kRow * static_cast<double>(i) + (kRow - kThick) / 2;
    out += label(kLeft, top + kThick - 3, "end", bars[i].name);
    double sum = 0;
    for (std::size_t k = 0; k < bars[i].parts.size(); ++k) {
      const double from = x.of(sum);
      sum += bars[i].parts[k];
      const double width = x.of(sum) - from;
      if (width <= 0) continue;
      out += "<rect class=\"part " + parts[k].style + "\" x=\"" + number(from) + "\" y=\"" + number(top) +
             "\" width=\"" + number(width) + "\" height=\"" + number(kThick) + "\">" +
             hint(bars[i].name + ", " + parts[k].name + ": " + format(bars[i].parts[k])) + "</rect>\n";
    }
  }
  return out + rule("axis", x.of(0), kTop, x.of(0), bottom) + "</svg>\n";
}

}  // namespace cgx::tool::chart
