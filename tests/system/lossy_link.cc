#include "tests/system/lossy_link.h"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <net/if.h>

namespace stoker::test {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr size_t kMaxPacket = 65'536;
constexpr milliseconds kStopCheckInterval{50};

Status error_of(const std::string& what) {
  return Status(StatusCode::kIoError, what + ": " + std::strerror(errno));
}

// In another thread, because a namespace is that of a thread.
Result<UniqueFd> open_device(const std::string& network, const std::string& interface) {
  Result<UniqueFd> opened = Status(StatusCode::kInternal, "not run");
  std::thread([&] {
    const UniqueFd other(::open(network.c_str(), O_RDONLY | O_CLOEXEC));
    if (::setns(other.get(), CLONE_NEWNET) != 0) {
      opened = error_of(network);
      return;
    }
    UniqueFd device(::open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC));
    ifreq request{};
    request.ifr_flags = IFF_TUN | IFF_NO_PI;
    interface.copy(static_cast<char*>(request.ifr_name), IFNAMSIZ - 1);
    if (device.get() < 0 || ::ioctl(device.get(), TUNSETIFF, &request) != 0)
      opened = error_of("/dev/net/tun");
    else
      opened = std::move(device);
  }).join();
  return opened;
}

}  // namespace

Result<std::unique_ptr<LossyLink>> LossyLink::open(const std::array<std::string, 2>& namespaces,
                                                   const std::string& interface,
                                                   const LossyLinkOptions& options) {
  std::array<UniqueFd, 2> devices;
  for (size_t host = 0; host < devices.size(); ++host) {
    STOKER_ASSIGN_OR_RETURN(devices[host], open_device(namespaces[host], interface));
  }
  return std::unique_ptr<LossyLink>(new LossyLink(std::move(devices), options));
}

LossyLink::LossyLink(std::array<UniqueFd, 2> devices, const LossyLinkOptions& options)
    : devices_(std::move(devices)),
      options_(options),
      random_{std::mt19937_64(options.seed), std::mt19937_64(options.seed + 1)},
      thread_([this](const std::stop_token& stop) { relay(stop); }) {}

void LossyLink::relay(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    std::array<pollfd, 2> polled{};
    for (size_t host = 0; host < polled.size(); ++host)
      polled[host] = {.fd = devices_[host].get(), .events = POLLIN, .revents = 0};
    milliseconds wait = kStopCheckInterval;
    if (!packets_.empty())
      wait = std::clamp(std::chrono::ceil<milliseconds>(packets_.front().due - steady_clock::now()),
                        milliseconds(0), wait);
    (void)::poll(polled.data(), polled.size(), static_cast<int>(wait.count()));
    for (size_t host = 0; host < polled.size(); ++host)
      if ((polled[host].revents & POLLIN) != 0) receive(host);
    deliver_due();
  }
}

void LossyLink::receive(size_t from) {
  std::array<char, kMaxPacket> buffer;
  while (true) {
    const ssize_t size = ::read(devices_[from].get(), buffer.data(), buffer.size());
    if (size <= 0) return;
    if (random_[from]() % 1000 < static_cast<uint64_t>(options_.loss_permille)) {
      ++dropped_;
      continue;
    }
    packets_.push_back({.due = steady_clock::now() + options_.delay,
                        .to = 1 - from,
                        .bytes = {buffer.data(), buffer.data() + size}});
  }
}

void LossyLink::deliver_due() {
  while (!packets_.empty() && packets_.front().due <= steady_clock::now()) {
    const Packet& packet = packets_.front();
    // Fails while the device is down: then it is lost, as on a wire.
    if (::write(devices_[packet.to].get(), packet.bytes.data(), packet.bytes.size()) > 0)
      ++delivered_;
    packets_.pop_front();
  }
}

}  // namespace stoker::test
