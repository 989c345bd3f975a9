/** What happens to a request that a rule hits. */
export type FaultAction =
  /** The connection is closed; the server never sees the request. */
  | 'closeBefore'
  /** The request is forwarded and the connection closed at once; the server executes it. */
  | 'closeOnForward'
  /** The connection is closed when the answer arrives: executed for certain, and the client cannot know. */
  | 'closeAfter'
  /** Executed, but the client never gets the answer; the connection stays open. */
  | 'dropResponse'
  /** The server never sees it, and the connection stays open. */
  | 'dropRequest'
  /** It and everything behind it on its connection wait for `ms`. */
  | 'delayRequest'
  | 'delayResponse'
  /** Kafka only: the server never sees the request, the client gets `errorCode`. */
  | 'answerError'
  /** Nothing but counting. */
  | 'count';

export interface FaultRule {
  /** Kafka: the api, as the protocol guide spells it. */
  readonly api?: string;
  /** Postgres: matched against the text of the statement. */
  readonly query?: RegExp;
  readonly action: FaultAction;
  /** Fires from the nth matching request on. Default 1. */
  readonly nth?: number;
  /** How often it fires. Default 1; Infinity for ever. */
  readonly times?: number;
  /** Only requests to this server, `host:port` as the server itself is reached. */
  readonly server?: string;
  /** Kafka: matched against the request's client id. */
  readonly clientId?: RegExp;
  /** Kafka: text that must occur in the bytes of the request, such as a topic, a group or a transactional id. */
  readonly contains?: string;
  /** Milliseconds of a delay. Default 1000. */
  readonly ms?: number;
  /** Kafka: `answerError` is given when this has resolved. */
  readonly until?: Promise<unknown>;
  /** Kafka: the code that `answerError` gives. */
  readonly errorCode?: number;
}

/** A request as the rules see it. */
export interface ObservedRequest {
  readonly api?: string;
  readonly query?: string;
  readonly clientId?: string | null;
  readonly server: string;
  readonly frame: Buffer;
}

/** A rule that counts: `seen` requests matched it, and it `fired` on some of them. */
export class ArmedRule {
  readonly rule: FaultRule;
  seen = 0;
  fired = 0;
  readonly #waiting = new Set<() => void>();

  constructor(rule: FaultRule) {
    if ((rule.api === undefined) === (rule.query === undefined)) throw new Error('a rule needs api (Kafka) or query (Postgres)');
    if (rule.action === 'answerError' && rule.errorCode === undefined) throw new Error('answerError needs an errorCode');
    this.rule = rule;
  }

  /** Counts the request if it matches; true when the rule fires on it, which only happens where it `mayFire`. */
  hits(request: ObservedRequest, mayFire: boolean): boolean {
    const { api, query, server, clientId, contains, nth = 1, times = 1 } = this.rule;
    if (api !== undefined && api !== request.api) return false;
    if (query !== undefined && (request.query === undefined || !query.test(request.query))) return false;
    if (server !== undefined && server !== request.server) return false;
    if (clientId !== undefined && !clientId.test(request.clientId ?? '')) return false;
    if (contains !== undefined && !request.frame.includes(contains)) return false;
    this.seen++;
    const fires = mayFire && this.seen >= nth && this.fired < times;
    if (fires) this.fired++;
    for (const check of this.#waiting) check();
    return fires;
  }

  /** Resolves when the rule has fired `count` times. */
  waitFired(count = 1, timeoutMs = 20_000): Promise<void> {
    return this.#wait(
      () => this.fired >= count,
      timeoutMs,
      () => `fired ${this.fired} of ${count} times`,
    );
  }

  /** Resolves when `count` requests have matched. */
  waitSeen(count = 1, timeoutMs = 20_000): Promise<void> {
    return this.#wait(
      () => this.seen >= count,
      timeoutMs,
      () => `saw ${this.seen} of ${count} requests`,
    );
  }

  #wait(done: () => boolean, timeoutMs: number, progress: () => string): Promise<void> {
    if (done()) return Promise.resolve();
    return new Promise((resolve, reject) => {
      const check = (): void => {
        if (!done()) return;
        clearTimeout(timer);
        this.#waiting.delete(check);
        resolve();
      };
      const timer = setTimeout(() => {
        this.#waiting.delete(check);
        reject(new Error(`the rule ${JSON.stringify(this.rule)} ${progress()} within ${timeoutMs} ms`));
      }, timeoutMs);
      this.#waiting.add(check);
    });
  }
}

/** The rules of one proxy. Each request counts against every rule that matches it; the first one that is due fires. */
export class RuleBook {
  readonly #rules = new Set<ArmedRule>();

  add(rule: FaultRule): ArmedRule {
    const armed = new ArmedRule(rule);
    this.#rules.add(armed);
    return armed;
  }

  remove(rule: ArmedRule): void {
    this.#rules.delete(rule);
  }

  clear(): void {
    this.#rules.clear();
  }

  match(request: ObservedRequest): FaultRule | undefined {
    let due: FaultRule | undefined;
    for (const armed of this.#rules) {
      if (armed.hits(request, due === undefined)) due = armed.rule;
    }
    return due;
  }
}
