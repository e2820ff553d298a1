/* The way around the bridge: a worker's frame to a MAC of another host is wrapped and sent at once.
 *
 * `send` is on the ports where workers' frames enter the bridge, `leave` where packets leave by an uplink, and
 * `refuse` on the sending tunnel, where nothing should ever arrive. What `send` does not know, and anything for
 * many, goes on to the bridge as if it were not there; so does everything once nobody has renewed `alive_until`.
 *
 *   clang -O2 -target bpf -c fast_path.bpf.c -o fast_path.bpf.o
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>

#define SECTION(name) __attribute__((section(name), used))
#define big_endian(number) __builtin_bswap16(number)

struct map {
    __u32 type, key_size, value_size, max_entries, flags;
};

struct settings {
    __u64 alive_until; /* nanoseconds of CLOCK_MONOTONIC */
    __u32 sender;      /* index of the device that wraps */
    __u32 vni;
    __u32 loopback;
    __u32 tunnel_port;
    __u32 sending_port;
    __u32 unused;
};

/* MAC -> the IPv4 address of its host's loopback, as both stand in packets. */
SECTION("maps") struct map remotes = {BPF_MAP_TYPE_HASH, ETH_ALEN, sizeof(__u32), 65536, BPF_F_NO_PREALLOC};
SECTION("maps") struct map settings = {BPF_MAP_TYPE_ARRAY, sizeof(__u32), sizeof(struct settings), 1, 0};

static void *(*map_lookup)(void *map, const void *key) = (void *)BPF_FUNC_map_lookup_elem;
static __u64 (*now)(void) = (void *)BPF_FUNC_ktime_get_ns;
static long (*redirect)(__u32 device, __u64 flags) = (void *)BPF_FUNC_redirect;
static long (*set_tunnel_key)(struct __sk_buff *, struct bpf_tunnel_key *, __u32 size,
                              __u64 flags) = (void *)BPF_FUNC_skb_set_tunnel_key;
static long (*store_bytes)(struct __sk_buff *, __u32 offset, const void *, __u32 size,
                           __u64 flags) = (void *)BPF_FUNC_skb_store_bytes;

static struct settings *read_settings(void)
{
    __u32 first = 0;
    return map_lookup(&settings, &first);
}

SECTION("tc/send") int send(struct __sk_buff *frame)
{
    void *start = (void *)(long)frame->data, *end = (void *)(long)frame->data_end;
    struct ethhdr *ethernet = start;
    if (start + sizeof(*ethernet) > end || ethernet->h_dest[0] & 1 || frame->vlan_present)
        return TC_ACT_UNSPEC;

    __u8 mac[ETH_ALEN];
    __builtin_memcpy(mac, ethernet->h_dest, ETH_ALEN);
    __u32 *remote = map_lookup(&remotes, mac);
    struct settings *told = read_settings();
    if (!remote || !told || now() > told->alive_until)
        return TC_ACT_UNSPEC;

    /* A tunnel key set by BPF is routed afresh for each packet: flows spread over the uplinks by their port. */
    struct bpf_tunnel_key key = {};
    key.tunnel_id = told->vni;
    key.remote_ipv4 = __builtin_bswap32(*remote);
    key.local_ipv4 = told->loopback;
    key.tunnel_ttl = 64;
    if (set_tunnel_key(frame, &key, sizeof(key), BPF_F_ZERO_CSUM_TX))
        return TC_ACT_UNSPEC;
    return redirect(told->sender, 0);
}

/* The sending tunnel cannot share its port with the tunnels that receive: it has one of its own, and what it sent
 * gets the port of all others here. Its packets carry no UDP checksum that would have to follow. */
SECTION("tc/leave") int leave(struct __sk_buff *packet)
{
    void *start = (void *)(long)packet->data, *end = (void *)(long)packet->data_end;
    struct iphdr *ip = start + sizeof(struct ethhdr);
    struct udphdr *udp = (void *)(ip + 1);
    if (packet->protocol != big_endian(ETH_P_IP) || (void *)(udp + 1) > end)
        return TC_ACT_UNSPEC;
    if (ip->protocol != IPPROTO_UDP || ip->ihl != 5 || ip->frag_off & big_endian(0x1fff) || udp->check)
        return TC_ACT_UNSPEC;
    struct settings *told = read_settings();
    if (!told || udp->dest != big_endian(told->sending_port) || __builtin_bswap32(ip->saddr) != told->loopback)
        return TC_ACT_UNSPEC;
    __u16 port = big_endian(told->tunnel_port);
    store_bytes(packet, (void *)&udp->dest - start, &port, sizeof(port), 0);
    return TC_ACT_UNSPEC;
}

SECTION("tc/refuse") int refuse(struct __sk_buff *packet)
{
    return TC_ACT_SHOT;
}

SECTION("license") char license_of_this[] = "Apache-2.0";
