"""What the thesis on THORN-ML reports (seed 002, chapter 3): A100 GPUs, ConnectX-5 cards, offloaded VXLAN."""

THORN = {
    "THORN-ML, time of an iteration under its fault cycle, 90th to 95th percentile": {
        "data parallel": "+5.3 to 7.3 ms (1.1 to 1.6 %)",
        "pipeline parallel": "+54.9 to 76.7 ms (5.6 to 7.8 %)",
        "pipeline and tensor parallel": "+729.4 to 928.4 ms (9.2 to 11.7 %)",
    },
    "THORN-ML, NCCL bandwidth under faults, 80th percentile": {"most difference": "0.129 Gbit/s"},
    "THORN-ML, a single fault": {"added latency": "only above the 99.9th percentile"},
    "THORN-ML, without it, per failure": {"GPT-2": "27.0 to 30.8 s", "ResNet101": "up to 85 s"},
}
