# `tidemark` with the topologies of this folder. Node runs TypeScript as it is (from 22.18 on): nothing is built.
FROM node:22-slim
WORKDIR /app
COPY package.json package-lock.json .npmrc ./
RUN npm ci --omit=dev --ignore-scripts
COPY bin ./bin
COPY src ./src
COPY topologies ./topologies
ENV NODE_ENV=production
USER node
ENTRYPOINT ["node", "bin/tidemark.js"]
CMD ["run", "topologies/flights.ts", "--bad-records", "dead-letter"]
