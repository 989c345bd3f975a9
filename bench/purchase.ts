/** What `Peer generate` writes: 187 bytes of JSON. */
export interface Purchase {
  readonly id: number;
  readonly user: string;
  readonly amount: number;
  /** When it was sent: milliseconds, in the latency probe nanoseconds. */
  readonly ts: number;
  readonly kind: string;
  readonly region: string;
  readonly pad: string;
  processed?: boolean;
}
